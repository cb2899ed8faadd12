"""A group of the classic protocol: what its members ask of it, and what they are told."""

from collections.abc import Mapping, Sequence
from typing import Final

from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import GROUP_BYTES_MAX
from tidelog.node.groups import requests as ask
from tidelog.node.groups.causes import of_rejoin
from tidelog.node.groups.classic_generations import Generations
from tidelog.node.groups.classic_members import Member
from tidelog.node.groups.classic_states import Phase
from tidelog.node.groups.group import Draft
from tidelog.node.groups.history import NOBODY, Cause, Trigger
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode, Rejected


class ClassicGroup(Generations):
    """One group, as its members ask it."""

    kind: Final = "classic"

    def check_commit(
        self,
        now: Instant,
        who: ask.Who,
        _offsets: Sequence[ask.OffsetToCommit],
        *,
        in_transaction: bool = False,
    ) -> None:
        if who.generation < 0 and self.is_empty:
            return
        if who.generation < 0 and not who.member_id and who.instance_id is None:
            raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID)
        member = self._member(who)
        if self.phase is Phase.COMPLETING and not in_transaction:
            raise Rejected(ErrorCode.REBALANCE_IN_PROGRESS)
        self._seen(now, member)

    def check_old_commit(self, who: ask.Who) -> None:
        """Any version is old enough."""

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

    # -- joining

    def join(self, now: Instant, asked: RequestId, request: ask.JoinGroup, draft: Draft) -> None:
        who = request.who
        self._check_room(who)
        self.members.check_fits(request, self.protocol_type)
        if not who.member_id:
            self._join_without_id(now, asked, request, draft)
        elif who.instance_id is None and self._promised.take(who.member_id):
            self._add(now, asked, request, who.member_id, draft)
        else:
            self._join_again(now, asked, request, self.members.named(who), draft)

    def _check_room(self, who: ask.Who) -> None:
        known = self.members.get(who.member_id)
        if known is not None and (self.phase is not Phase.PREPARING or known.joining is not None):
            return
        if who.instance_id is not None and self.members.of_instance(who.instance_id) is not None:
            return  # it takes the place of its former self
        promised = len(self._promised) - (who.member_id in self._promised)
        there = len(self.members)
        if self.phase is Phase.PREPARING:
            # Of those of before nobody knows yet who comes again.
            there = sum(one.joining is not None for one in self.members)
        if max(there, promised) >= self._settings["group.max.size"]:
            raise Rejected(ErrorCode.GROUP_MAX_SIZE_REACHED)

    def _join_without_id(
        self, now: Instant, asked: RequestId, request: ask.JoinGroup, draft: Draft
    ) -> None:
        instance = request.who.instance_id
        member_id = request.new_member_id
        standing = None if instance is None else self.members.of_instance(instance)
        if standing is not None:
            self._replace(now, asked, request, standing, draft)
        elif instance is None and request.needs_known_id:
            self._promised.give(member_id, self._after(now, request.session_timeout_ms))
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
        self._rebalance(now, Cause(Trigger.JOIN, member.named, request.reason), draft)
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
        says = next((said for name, said in request.protocols if name == self.protocol), None)
        why, detail = of_rejoin(
            self._then, member.subscription(self.protocol), says, is_leader=is_leader
        )
        if member.joining is not None:
            draft.reply(member.joining, Refusal(ErrorCode.REBALANCE_IN_PROGRESS))  # it asks anew
        member.said(request)
        self._wants_in(asked, member)
        self._rebalance(now, Cause(why, member.named, request.reason, detail), draft)
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
        self._rebalance(now, Cause(Trigger.STATIC, member.named, request.reason), draft)
        self._maybe_complete(now, draft)

    def _wants_in(self, asked: RequestId, member: Member) -> None:
        member.joining, member.is_gone = asked, False
        self._last_joiner = member.named

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
        leader = self.members.get(self.leader or "")
        self.history.ended(NOBODY if leader is None else leader.named)
        for member in self.members:
            if member.syncing is not None:
                draft.reply(member.syncing, self._synced(assignments.get(member.id, b"")))
                member.syncing = None
                self._seen(now, member)

    def _synced(self, assignment: bytes) -> ask.Synced:
        return ask.Synced(self.protocol_type, self.protocol or "", assignment)

    # -- life and death of members

    def beat(self, now: Instant, asked: RequestId, request: ask.Heartbeat, draft: Draft) -> None:
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
        if leaving.instance_id is None and self._promised.take(leaving.member_id):
            return ErrorCode.NONE
        member_id = leaving.member_id
        if leaving.instance_id is not None and not member_id:
            standing = self.members.of_instance(leaving.instance_id)
            member_id = "" if standing is None else standing.id
        member = self.members.named(ask.Who(member_id, leaving.instance_id, -1))
        self._remove(now, member, Trigger.LEAVE, leaving.reason, draft)
        return ErrorCode.NONE

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
