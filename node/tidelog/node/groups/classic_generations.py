"""The generations of a group of the classic protocol: who is in one, and how the next comes about.

docs/groups.md has the states as tables. What a fail-over must not lose is in the group's record:
generation, chosen protocol, leader, members and assignments. A record is written when a generation
is complete, so that no coordinator ever gives its number to another one, and when it is assigned.
Who waits and who was heard when is forgotten with the coordinator: clients ask again.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups import requests as ask
from tidelog.node.groups.causes import TopicsThen
from tidelog.node.groups.classic_members import Member, Members, Promised, member_of, topics_of
from tidelog.node.groups.classic_states import TRANSITIONS, Phase
from tidelog.node.groups.group import Around, Draft
from tidelog.node.groups.history import NOBODY, Cause, History, Named, Trigger
from tidelog.node.groups.records import GroupRecord, GroupState
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode

CONSUMER_TYPE: Final = "consumer"
_NOBODY: Final[frozenset[str]] = frozenset()
_LOOK_AGAIN_MS: Final = 1_000
"""A member may say that it needs no time to join; whoever waits for it looks this often."""


class Generations:
    """Those of one group.

    Invariant: EMPTY exactly where it has no member; in COMPLETING and STABLE every member belongs
    to this generation and nobody waits to join; in COMPLETING no assignment is given out.
    """

    def __init__(self, name: str, around: Around) -> None:
        self.name = name
        self._settings = around.settings
        self._wall_ms = around.wall_ms
        self._then = TopicsThen(around.topics)
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self._since_ms: int | None = None
        self.members = Members()
        self.phase = Phase.EMPTY
        self.history = History(name, "classic", around.tell)
        self._promised = Promised()
        self._join_by: Instant | None = None
        """Who has not joined by then is given up."""
        self._gather_until: Instant | None = None
        """While the first generation of an empty group gathers: when it must be complete."""
        self._gathered = False
        """Somebody came since the latest look."""
        self._sync_by: Instant | None = None
        """Who has not asked for its assignment by then is given up."""
        self._last_joiner = NOBODY
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
        return self.is_empty and self._since_ms is None and not self._promised

    @property
    def empty_since_ms(self) -> int | None:
        return self._since_ms if self.is_empty else None

    def subscribed(self) -> AbstractSet[str] | None:
        if self.is_empty:
            return _NOBODY
        if self.protocol_type != CONSUMER_TYPE:
            return None
        return topics_of(metadata for one in self.members for _, metadata in one.protocols[:1])

    # -- what a fail-over keeps

    def replay(self, state: GroupState) -> None:
        """Take the next record."""
        # A log that is compacted while it is loaded may show a group that was deleted and made
        # again without what stood in between.
        is_forward = state.generation >= self.generation
        assert is_forward or not self._is_loaded, (state.generation, self.generation)
        self.generation = state.generation
        self.protocol_type = state.protocol_type
        self.protocol, self.leader = state.protocol, state.leader
        self._since_ms = state.since_ms
        if not self._is_loaded:
            self.members = Members()
        named = {kept.member_id: kept for kept in state.members}
        for member in self.members:
            if member.id not in named and member.joining is None:  # who joins is in the next one
                self.members.remove(member)
        for kept in state.members:
            known = self.members.get(kept.member_id)
            if known is None:
                self._restore(member_of(kept, state.protocol))
            else:
                known.assignment = kept.assignment

    def _restore(self, member: Member) -> None:
        instance = member.instance_id
        is_twin = instance is not None and self.members.of_instance(instance) is not None
        if is_twin and not self._is_loaded:
            return  # No coordinator of ours writes that; of two members one has the instance.
        self.members.add(member)

    def adopt(self, now: Instant, generation: int, members: Iterable[Member], draft: Draft) -> None:
        """Be the group of these, who were one of the consumer protocol. What they have is no share
        of a generation: there is no leader that would have made it."""
        assert self.is_empty, self.name
        self._is_loaded = True
        protocol = None
        for member in members:
            self.members.add(member)
            self._seen(now, member)
        if len(self.members):
            self.protocol_type = CONSUMER_TYPE
            protocol = self.members.choose_protocol()
            self.phase = Phase.STABLE  # as out of a log, and for as long as this decision takes
        has = {one.id: one.assignment for one in self.members}
        record = self._record(now, generation, protocol, None, has)
        assert record.value is not None, self.name
        self.replay(record.value)  # and again when the decision is: that changes nothing more
        draft.record(record)

    def begin_anew(self, now: Instant, cause: Cause, draft: Draft) -> None:
        """Have all of them join."""
        self._rebalance(now, cause, draft)

    def turn_away(self, draft: Draft) -> None:
        """The group is one of the other protocol: who waits asks again."""
        for member in self.members:
            for waiting in (member.joining, member.syncing):
                if waiting is not None:
                    draft.reply(waiting, Refusal(ErrorCode.REBALANCE_IN_PROGRESS))
            member.joining = member.syncing = None

    def loaded(self, now: Instant) -> None:
        self._is_loaded = True
        if not len(self.members):
            return
        # Without a leader, or any assignment, it was never shared out: all join anew.
        is_led = self.leader is not None and self.protocol is not None
        is_assigned = is_led and any(one.assignment for one in self.members)
        self.phase = Phase.STABLE if is_assigned else Phase.PREPARING
        if not is_assigned:
            self._began(now, Cause(Trigger.MOVED))
            self._join_by = self._after(now, self.members.rebalance_timeout_ms())
        self._note_topics()
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
        members = self.members.kept(protocol, assignments)
        state = GroupState(
            self.protocol_type, generation, protocol, leader, self._wall_ms(now), members
        )
        return GroupRecord(self.name, state)

    # -- rebalances

    def _enter(self, phase: Phase) -> None:
        assert phase in TRANSITIONS[self.phase], (self.phase, phase)
        self.phase = phase

    def _rebalance(self, now: Instant, cause: Cause, draft: Draft) -> None:
        """Have everybody join anew, unless they are about to."""
        if self.phase is Phase.PREPARING:
            return
        self._turn_syncs_away(now, draft)
        was_empty = self.is_empty
        self._enter(Phase.PREPARING)
        self._sync_by = None
        self._began(now, cause)
        timeout_ms = self.members.rebalance_timeout_ms()
        if was_empty:
            delay_ms = self._settings["group.initial.rebalance.delay.ms"]
            self._gather_until = Instant(now + ms(max(timeout_ms, delay_ms)))
            self._gathered = False
            timeout_ms = delay_ms
        self._join_by = self._after(now, timeout_ms)

    def _began(self, now: Instant, cause: Cause) -> None:
        self.history.began(cause, now, self.generation + 1, len(self.members))
        self._note_look()

    def _note_look(self) -> None:
        if self.history.look_at is not None:
            self._note(self.history.look_at)

    def _note_topics(self) -> None:
        """What they are now: what comes later has the group share anew."""
        if self.protocol_type == CONSUMER_TYPE:
            self._then.note(self.subscribed() or _NOBODY)

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
        if not self._promised and all(member.joining is not None for member in self.members):
            self._complete(now, draft)

    def _complete(self, now: Instant, draft: Draft) -> None:
        """The next generation is those who joined, and static members who are away."""
        absent = [one for one in self.members if one.joining is None and one.instance_id is None]
        for member in absent:
            self.members.remove(member)
        joined = [one for one in self.members if one.joining is not None]
        if len(self.members) and not joined:
            # Only static members, all of them away: until their time is up they may come back.
            again_ms = max(self.members.rebalance_timeout_ms(), _LOOK_AGAIN_MS)
            self._join_by = self._after(now, again_ms)
            return
        self._join_by = self._gather_until = None
        self._finish(now, joined, [one.named for one in absent], draft)

    def _finish(
        self, now: Instant, joined: list[Member], given_up: list[Named], draft: Draft
    ) -> None:
        generation = self.generation + 1
        last = self._last_joiner if joined else NOBODY
        self.history.gathered(now, len(joined), last, given_up)
        self._note_look()
        if not joined:
            self._enter(Phase.EMPTY)
            self.history.ended()
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
        self._note_topics()

    def _remove(
        self, now: Instant, member: Member, trigger: Trigger, reason: str, draft: Draft
    ) -> None:
        for waiting in (member.joining, member.syncing):
            if waiting is not None:
                draft.reply(waiting, Refusal(ErrorCode.UNKNOWN_MEMBER_ID))
        member.joining = member.syncing = None
        self._rebalance(now, Cause(trigger, member.named, reason), draft)
        self.members.remove(member)

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
        self._promised.expire(now)
        self._give_up_silent(now, draft)
        if self._sync_by is not None and self._sync_by <= now:
            self._give_up_unsynced(now, draft)
        if self._join_by is not None and self._join_by <= now:
            self._end_of_joining(now, draft)
        else:
            self._maybe_complete(now, draft)
        self.history.waits(now, [one.named for one in self._awaited()])
        self._look_at = self._earliest()

    def _awaited(self) -> list[Member]:
        """Whom the others wait for: to join, and then the leader to assign."""
        if self.phase is Phase.PREPARING:
            return [one for one in self.members if one.joining is None]
        return [one for one in self.members if one.id == self.leader]

    def _give_up_silent(self, now: Instant, draft: Draft) -> None:
        for member in self.members:
            if not member.is_waiting and member.expires <= now:
                why = Trigger.DISCONNECT if member.is_gone else Trigger.SESSION_TIMEOUT
                if self.phase is Phase.PREPARING:
                    self.history.gave_up(member.named)
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
        deadlines += self._promised.deadlines()
        others = (self._join_by, self._sync_by, self.history.look_at)
        deadlines += [one for one in others if one is not None]
        return min(deadlines, default=None)
