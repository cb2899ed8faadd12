"""A group of the classic protocol: its members agree on generations, one of them assigns.

docs/groups.md has the states as tables. What a fail-over must not lose is in the group's record:
generation, chosen protocol, leader, members and assignments. A record is written when a generation
is complete, so that no coordinator ever gives its number to another one, and when it is assigned.
Who waits and who was heard when is forgotten with the coordinator: clients ask again.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import GROUP_BYTES_MAX
from tidelog.node.groups import requests as ask
from tidelog.node.groups.classic_members import Member, Members, member_of, topics_of
from tidelog.node.groups.classic_states import TRANSITIONS, Phase, Trigger
from tidelog.node.groups.group import Draft
from tidelog.node.groups.history import Cause, History
from tidelog.node.groups.records import GroupRecord, GroupState
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode, Rejected

CONSUMER_TYPE: Final = "consumer"
_NOBODY: Final[frozenset[str]] = frozenset()


class ClassicGroup:
    """One group.

    Invariant: EMPTY exactly where it has no member; in COMPLETING and STABLE every member belongs
    to this generation and nobody waits to join; in COMPLETING no assignment is given out.
    """

    kind: Final = "Classic"

    def __init__(
        self, name: str, settings: Mapping[str, Any], wall_ms: Callable[[Instant], int]
    ) -> None:
        self.name = name
        self._settings = settings
        self._wall_ms = wall_ms
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self._since_ms: int | None = None
        self.members = Members()
        self.phase = Phase.EMPTY
        self.history = History()
        self._pending: dict[str, Instant] = {}
        """Ids given away whose members have not joined yet, and until when they may."""
        self._join_by: Instant | None = None
        """Who has not joined by then is given up."""
        self._gather_until: Instant | None = None
        """While the first generation of an empty group gathers: when it must be complete."""
        self._gathered = False
        """Somebody came since the latest look."""
        self._sync_by: Instant | None = None
        """Who has not asked for its assignment by then is given up."""
        self._last_joiner = ""
        self._is_loaded = False
        """While it is not, a record says all there is to know."""
        self._look_at: Instant | None = None
        """No deadline is earlier than this."""

    # -- what the coordinator wants to know

    @property
    def state(self) -> str:
        return self.phase.value

    @property
    def is_empty(self) -> bool:
        return self.phase is Phase.EMPTY

    @property
    def is_vain(self) -> bool:
        """Whether nothing is known of it that its log would have to say."""
        return self.is_empty and self._since_ms is None and not self._pending

    @property
    def empty_since_ms(self) -> int | None:
        return self._since_ms if self.is_empty else None

    def subscribed(self) -> AbstractSet[str] | None:
        if self.is_empty:
            return _NOBODY
        if self.protocol_type != CONSUMER_TYPE:
            return None
        return topics_of(metadata for one in self.members for _, metadata in one.protocols[:1])

    def check_commit(self, now: Instant, who: ask.Who) -> None:
        if who.generation < 0 and self.is_empty:
            return
        if who.generation < 0 and not who.member_id and who.instance_id is None:
            raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self._member(who)
        if self.phase is Phase.COMPLETING:
            raise Rejected(ErrorCode.REBALANCE_IN_PROGRESS)
        self._seen(now, member)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anybody may."""

    def describe(self) -> ask.GroupDescribed:
        is_stable = self.phase is Phase.STABLE
        return ask.GroupDescribed(
            state=self.state,
            protocol_type=self.protocol_type,
            protocol=(self.protocol or "") if is_stable else "",
            members=tuple(
                one.described(self.protocol, is_stable=is_stable) for one in self.members
            ),
        )

    # -- what a fail-over keeps

    def replay(self, state: GroupState) -> None:
        """Take the next record."""
        assert state.generation >= self.generation, (state.generation, self.generation)
        self.generation = state.generation
        self.protocol_type = state.protocol_type
        self.protocol, self.leader = state.protocol, state.leader
        self._since_ms = state.since_ms
        if not self._is_loaded:
            self.members = Members()
        named = {kept.member_id: kept for kept in state.members}
        for member in self.members:
            if member.id not in named:
                assert not member.is_waiting, member.id
                self.members.remove(member)
        for kept in state.members:
            known = self.members.get(kept.member_id)
            if known is None:
                self.members.add(member_of(kept, state.protocol))
            else:
                known.assignment = kept.assignment

    def loaded(self, now: Instant) -> None:
        self._is_loaded = True
        if not len(self.members):
            return
        # A generation without any assignment was never assigned: its leader is asked once more.
        is_assigned = any(member.assignment for member in self.members)
        self.phase = Phase.STABLE if is_assigned else Phase.PREPARING
        if not is_assigned:
            self.history.began(Cause(Trigger.MOVED.value), now, self._wall_ms(now))
            self._join_by = self._after(now, self.members.rebalance_timeout_ms())
        for member in self.members:
            self._seen(now, member)

    def forgotten(self) -> tuple[GroupRecord, ...]:
        return (GroupRecord(self.name, None),) if self._since_ms is not None else ()

    def _record(
        self,
        now: Instant,
        generation: int,
        protocol: str | None,
        leader: str | None,
        assignments: Mapping[str, bytes],
    ) -> GroupRecord:
        members = tuple(one.kept(protocol, assignments.get(one.id, b"")) for one in self.members)
        state = GroupState(
            self.protocol_type, generation, protocol, leader, self._wall_ms(now), members
        )
        return GroupRecord(self.name, state)

    # -- joining

    def join(self, now: Instant, asked: RequestId, request: ask.JoinGroup, draft: Draft) -> None:
        who = request.who
        self._check_room(who)
        self._check_protocols(request)
        if not who.member_id:
            self._join_without_id(now, asked, request, draft)
        elif who.member_id in self._pending and who.instance_id is None:
            del self._pending[who.member_id]
            self._add(now, asked, request, who.member_id, draft)
        else:
            self._join_again(now, asked, request, self.members.named(who), draft)

    def _check_room(self, who: ask.Who) -> None:
        known = self.members.get(who.member_id)
        if known is not None and (self.phase is not Phase.PREPARING or known.joining is not None):
            return
        if who.instance_id is not None and self.members.of_instance(who.instance_id) is not None:
            return  # it takes the place of its former self
        promised = len(self._pending) - (who.member_id in self._pending)
        there = len(self.members)
        if self.phase is Phase.PREPARING:
            # Of those of before nobody knows yet who comes again.
            there = sum(one.joining is not None for one in self.members)
        if max(there, promised) >= self._settings["group.max.size"]:
            raise Rejected(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _check_protocols(self, request: ask.JoinGroup) -> None:
        names = {name for name, _ in request.protocols}
        fits = bool(request.protocol_type and names)
        if not self.is_empty:
            same = request.protocol_type == self.protocol_type
            fits = fits and same and bool(names & self.members.common_protocols())
        if not fits:
            raise Rejected(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        size = sum(len(metadata) for _, metadata in request.protocols)
        if size + self.members.size_bytes() > GROUP_BYTES_MAX:
            raise Rejected(ErrorCode.GROUP_MAX_SIZE_REACHED, "its members say too much")

    def _join_without_id(
        self, now: Instant, asked: RequestId, request: ask.JoinGroup, draft: Draft
    ) -> None:
        instance = request.who.instance_id
        member_id = request.new_member_id
        standing = None if instance is None else self.members.of_instance(instance)
        if standing is not None:
            self._replace(now, asked, request, standing, draft)
        elif instance is None and request.needs_known_id:
            expires = self._after(now, request.session_timeout_ms)
            self._pending[member_id] = expires
            draft.reply(asked, ask.JoinRefused(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(now, asked, request, member_id, draft)

    def _add(
        self,
        now: Instant,
        asked: RequestId,
        request: ask.JoinGroup,
        member_id: str,
        draft: Draft,
    ) -> None:
        member = Member(
            id=member_id,
            instance_id=request.who.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocols=request.protocols,
        )
        if self.is_empty:
            self.protocol_type = request.protocol_type
        self.members.add(member)
        self._gathered = True
        self._wants_in(asked, member)
        self._rebalance(now, Trigger.JOIN, member, request.reason, draft)
        self._maybe_complete(now, draft)

    def _join_again(
        self,
        now: Instant,
        asked: RequestId,
        request: ask.JoinGroup,
        member: Member,
        draft: Draft,
    ) -> None:
        is_same = member.protocols == request.protocols
        is_leader = member.id == self.leader
        if self.phase is Phase.COMPLETING and is_same:
            # The answer to its last JoinGroup did not reach it.
            self._seen(now, member)
            draft.reply(asked, self._joined(member))
            return
        if self.phase is Phase.STABLE and is_same and not is_leader:
            self._seen(now, member)
            draft.reply(asked, self._joined(member))
            return
        if not is_same:
            why = Trigger.SUBSCRIPTION
        else:
            why = Trigger.LEADER if is_leader else Trigger.REJOIN
        if member.joining is not None:
            draft.reply(member.joining, Refusal(ErrorCode.REBALANCE_IN_PROGRESS))  # it asks anew
        member.said(request)
        self._wants_in(asked, member)
        self._rebalance(now, why, member, request.reason, draft)
        self._maybe_complete(now, draft)

    def _replace(
        self,
        now: Instant,
        asked: RequestId,
        request: ask.JoinGroup,
        member: Member,
        draft: Draft,
    ) -> None:
        """A static member came back without its id: it goes on as who it was (KIP-345)."""
        before = member.id
        for waiting in (member.joining, member.syncing):
            if waiting is not None:
                draft.reply(waiting, Refusal(ErrorCode.FENCED_INSTANCE_ID))
        member.joining = member.syncing = None
        self.members.rename(member, request.new_member_id)
        member.said(request)
        self._seen(now, member)
        if self.phase is Phase.STABLE and self.members.choose_protocol() == self.protocol:
            self._go_on_as(now, asked, request, member, before, draft)
            return
        if before == self.leader:
            self.leader = member.id
        self._wants_in(asked, member)
        self._rebalance(now, Trigger.STATIC, member, request.reason, draft)
        self._maybe_complete(now, draft)

    def _wants_in(self, asked: RequestId, member: Member) -> None:
        member.joining, member.is_gone = asked, False
        self._last_joiner = member.id

    def _go_on_as(
        self,
        now: Instant,
        asked: RequestId,
        request: ask.JoinGroup,
        member: Member,
        before: str,
        draft: Draft,
    ) -> None:
        """No rebalance: it has the generation and the assignment of its former self."""
        assert self.leader is not None, self.name
        is_leader = before == self.leader
        leader = member.id if is_leader else self.leader
        assignments = {one.id: one.assignment for one in self.members}
        draft.record(self._record(now, self.generation, self.protocol, leader, assignments))
        assert self.protocol is not None, self.name
        skips = request.may_skip_assignment
        joined = ask.Joined(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            # One that cannot skip must not take itself for the leader: it would assign anew.
            leader=leader if skips else before if is_leader else leader,
            member_id=member.id,
            members=self.members.joined(self.protocol) if skips and is_leader else (),
            skip_assignment=skips and is_leader,
        )
        draft.reply(asked, joined)

    def _joined(self, member: Member) -> ask.Joined:
        """The answer of the generation as it is."""
        assert self.protocol is not None, self.name
        assert self.leader is not None, self.name
        is_told = member.id == self.leader
        return ask.Joined(
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol=self.protocol,
            leader=self.leader,
            member_id=member.id,
            members=self.members.joined(self.protocol) if is_told else (),
        )

    # -- rebalances

    def _enter(self, phase: Phase) -> None:
        assert phase in TRANSITIONS[self.phase], (self.phase, phase)
        self.phase = phase

    def _rebalance(
        self,
        now: Instant,
        trigger: Trigger,
        member: Member,
        reason: str,
        draft: Draft,
    ) -> None:
        """Have everybody join anew, unless they are about to."""
        if self.phase is Phase.PREPARING:
            return
        self._turn_syncs_away(now, draft)
        was_empty = self.is_empty
        self._enter(Phase.PREPARING)
        self._sync_by = None
        cause = Cause(trigger.value, member.id, member.client_id, member.client_host, reason)
        self.history.began(cause, now, self._wall_ms(now))
        timeout_ms = self.members.rebalance_timeout_ms()
        if was_empty:
            delay_ms = self._settings["group.initial.rebalance.delay.ms"]
            self._gather_until = Instant(now + ms(max(timeout_ms, delay_ms)))
            self._gathered = False
            timeout_ms = delay_ms
        self._join_by = self._after(now, timeout_ms)

    def _turn_syncs_away(self, now: Instant, draft: Draft) -> None:
        for member in self.members:
            member.has_synced = False
            if member.syncing is not None:
                self._seen(now, member)
                draft.reply(member.syncing, Refusal(ErrorCode.REBALANCE_IN_PROGRESS))
                member.syncing = None

    def _maybe_complete(self, now: Instant, draft: Draft) -> None:
        """Complete the generation if everybody is there; time completes it in `expire`."""
        if self.phase is not Phase.PREPARING:
            return
        if self._gather_until is not None and self._join_by is not None and now < self._join_by:
            return
        if not self._pending and all(member.joining is not None for member in self.members):
            self._complete(now, draft)

    def _complete(self, now: Instant, draft: Draft) -> None:
        """The next generation is those who joined, and static members who are away."""
        absent = [one for one in self.members if one.joining is None and one.instance_id is None]
        for member in absent:
            self.members.remove(member)
        joined = [one for one in self.members if one.joining is not None]
        if len(self.members) and not joined:
            # Only static members, all of them away: until their time is up they may come back.
            self._join_by = self._after(now, self.members.rebalance_timeout_ms())
            return
        self._join_by = self._gather_until = None
        self._finish(now, joined, tuple(one.id for one in absent), draft)

    def _finish(
        self, now: Instant, joined: list[Member], given_up: tuple[str, ...], draft: Draft
    ) -> None:
        generation = self.generation + 1
        self.history.joined(now, generation, len(joined))
        latest = self.history.latest
        if latest is not None:
            latest.given_up, latest.last_member_id = given_up, self._last_joiner
        if not joined:
            self._enter(Phase.EMPTY)
            self.history.ended(now)
            draft.record(self._record(now, generation, None, None, {}))
            return
        self._enter(Phase.COMPLETING)
        protocol = self.members.choose_protocol()
        by_id = {one.id for one in joined}
        leader = self.leader if self.leader in by_id else joined[0].id
        assert leader is not None, self.name
        draft.record(self._record(now, generation, protocol, leader, {}))
        everybody = self.members.joined(protocol)
        for member in joined:
            assert member.joining is not None, member.id
            told = everybody if member.id == leader else ()
            answer = ask.Joined(generation, self.protocol_type, protocol, leader, member.id, told)
            draft.reply(member.joining, answer)
            member.joining = None
            member.has_synced = False
            self._seen(now, member)
        self._sync_by = self._after(now, self.members.rebalance_timeout_ms())

    # -- assignments

    def sync(self, now: Instant, asked: RequestId, request: ask.SyncGroup, draft: Draft) -> None:
        if self.is_empty:
            raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self._member(request.who)
        kinds, chosen = {None, self.protocol_type}, {None, self.protocol}
        if request.protocol_type not in kinds or request.protocol not in chosen:
            raise Rejected(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.phase is Phase.PREPARING:
            raise Rejected(ErrorCode.REBALANCE_IN_PROGRESS)
        member.has_synced = True
        self._seen(now, member)
        if self.phase is Phase.STABLE:
            draft.reply(asked, self._synced(member.assignment))
            return
        if member.syncing is not None:
            draft.reply(member.syncing, Refusal(ErrorCode.REBALANCE_IN_PROGRESS))  # it asks anew
        member.syncing = asked
        if member.id == self.leader:
            self._assign(now, dict(request.assignments), draft)

    def _assign(self, now: Instant, assignments: Mapping[str, bytes], draft: Draft) -> None:
        size = sum(map(len, assignments.values()))
        if size + self.members.size_bytes() > GROUP_BYTES_MAX:
            member = self.members.get(self.leader or "")
            assert member is not None, self.name
            member.syncing = None
            raise Rejected(ErrorCode.UNKNOWN_SERVER_ERROR, "the assignment is too large")
        draft.record(self._record(now, self.generation, self.protocol, self.leader, assignments))
        self._enter(Phase.STABLE)
        self.history.ended(now)
        for member in self.members:
            if member.syncing is not None:
                draft.reply(member.syncing, self._synced(assignments.get(member.id, b"")))
                member.syncing = None
                self._seen(now, member)

    def _synced(self, assignment: bytes) -> ask.Synced:
        return ask.Synced(self.protocol_type, self.protocol or "", assignment)

    # -- life and death of members

    def heartbeat(
        self, now: Instant, asked: RequestId, request: ask.Heartbeat, draft: Draft
    ) -> None:
        if self.is_empty:
            raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self._member(request.who)
        self._seen(now, member)
        if self.phase is Phase.PREPARING:
            raise Rejected(ErrorCode.REBALANCE_IN_PROGRESS)
        draft.reply(asked, None)

    def leave(self, now: Instant, asked: RequestId, request: ask.LeaveGroup, draft: Draft) -> None:
        codes = []
        for one in request.members:
            try:
                codes.append(self._leave(now, one, draft))
            except Rejected as refused:
                codes.append(refused.code)
        self._maybe_complete(now, draft)
        draft.reply(asked, tuple(codes))

    def _leave(self, now: Instant, leaving: ask.LeavingMember, draft: Draft) -> ErrorCode:
        if leaving.instance_id is None and leaving.member_id in self._pending:
            del self._pending[leaving.member_id]
            return ErrorCode.NONE
        member_id = leaving.member_id
        if leaving.instance_id is not None and not member_id:
            standing = self.members.of_instance(leaving.instance_id)
            member_id = "" if standing is None else standing.id
        member = self.members.named(ask.Who(member_id, leaving.instance_id, -1))
        self._remove(now, member, Trigger.LEAVE, leaving.reason, draft)
        return ErrorCode.NONE

    def _remove(
        self, now: Instant, member: Member, trigger: Trigger, reason: str, draft: Draft
    ) -> None:
        for waiting in (member.joining, member.syncing):
            if waiting is not None:
                draft.reply(waiting, Refusal(ErrorCode.UNKNOWN_MEMBER_ID))
        member.joining = member.syncing = None
        self._rebalance(now, trigger, member, reason, draft)
        self.members.remove(member)

    def _member(self, who: ask.Who) -> Member:
        """The member of this generation that a request comes from."""
        member = self.members.named(who)
        if who.generation != self.generation:
            raise Rejected(ErrorCode.ILLEGAL_GENERATION)
        return member

    def disconnected(self, now: Instant, member_id: str) -> None:
        """It has little time to come back, if the broker says so."""
        member = self.members.get(member_id)
        if member is not None:
            member.is_gone = True
            soon = self._after(now, self._settings["group.member.disconnect.ms"])
            member.expires = min(member.expires, soon)

    # -- time

    def _seen(self, now: Instant, member: Member) -> None:
        self._note(member.seen(now))

    def _after(self, now: Instant, milliseconds: int) -> Instant:
        deadline = Instant(now + ms(milliseconds))
        self._note(deadline)
        return deadline

    def _note(self, deadline: Instant) -> None:
        if self._look_at is None or deadline < self._look_at:
            self._look_at = deadline

    def deadline(self) -> Instant | None:
        return self._look_at

    def expire(self, now: Instant, draft: Draft) -> None:
        self._pending = {name: until for name, until in self._pending.items() if until > now}
        self._give_up_silent(now, draft)
        if self._sync_by is not None and self._sync_by <= now:
            self._give_up_unsynced(now, draft)
        if self._join_by is not None and self._join_by <= now:
            self._end_of_joining(now, draft)
        else:
            self._maybe_complete(now, draft)
        self._look_at = self._earliest()

    def _give_up_silent(self, now: Instant, draft: Draft) -> None:
        for member in self.members:
            if not member.is_waiting and member.expires <= now:
                why = Trigger.DISCONNECT if member.is_gone else Trigger.SESSION_TIMEOUT
                self._remove(now, member, why, "", draft)

    def _give_up_unsynced(self, now: Instant, draft: Draft) -> None:
        self._sync_by = None
        for member in [one for one in self.members if not one.has_synced]:
            self._remove(now, member, Trigger.REBALANCE_TIMEOUT, "", draft)

    def _end_of_joining(self, now: Instant, draft: Draft) -> None:
        until = self._gather_until
        if until is not None and self._gathered and now < until:
            # Others came while it gathered: there may be more of them.
            delay_ms = self._settings["group.initial.rebalance.delay.ms"]
            self._join_by = Instant(min(now + ms(delay_ms), until))
            self._gathered = False
            return
        self._complete(now, draft)

    def _earliest(self) -> Instant | None:
        deadlines = [one.expires for one in self.members if not one.is_waiting]
        deadlines += self._pending.values()
        deadlines += [one for one in (self._join_by, self._sync_by) if one is not None]
        return min(deadlines, default=None)
