"""A group of the consumer protocol: decides on what its members say, in the light of its log.

A heartbeat is all a member ever sends. It may move the group's epoch, then a new target is made at
once, and the member itself goes one step towards it. The others do with their own heartbeats.
"""

from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tidelog.kernel.ids import RequestId, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.texts import quoted
from tidelog.node.groups.causes import TopicsThen, of_topics
from tidelog.node.groups.consumer_checks import (
    check_epoch,
    check_late_commit,
    check_released,
    check_request,
    member_named,
    member_of_instance,
    pattern_of,
    stored_pattern_of,
)
from tidelog.node.groups.consumer_log import NOTHING, STABLE, LoggedGroup, group_tombstones
from tidelog.node.groups.consumer_member import (
    LEFT_FOR_NOW,
    Member,
    OwnedReport,
    pairs_of,
    reconciled,
)
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat, HeartbeatAnswer
from tidelog.node.groups.consumer_step import Step
from tidelog.node.groups.conversion import DOWNGRADES, as_classic
from tidelog.node.groups.group import Around, Draft
from tidelog.node.groups.history import NOBODY, Cause, History, Trigger
from tidelog.node.groups.records_consumer import ConsumerRecord, MemberState
from tidelog.node.groups.requests import OffsetToCommit, Who
from tidelog.wire.errors import ErrorCode, Rejected

if TYPE_CHECKING:
    from tidelog.node.groups.patterns import Pattern

PROTOCOL_TYPE: Final = "consumer"


class ConsumerGroup:
    """One group. What it must not forget is in `log`; who was heard of when is here.

    Invariant: every member of the log has a deadline once the log is loaded.
    """

    kind = "consumer"
    """As ListGroups names it."""
    protocol_type = PROTOCOL_TYPE
    is_vain = False
    empty_since_ms = None
    """Offsets of these groups are kept for so long since they were committed, as Kafka does."""

    def __init__(self, group: str, around: Around) -> None:
        self.log = LoggedGroup(group)
        self.history = History(group, "consumer", around.tell)
        self._around = around
        self._settings = around.settings
        self._topics = around.topics
        self._wall_ms = around.wall_ms
        self._then = TopicsThen(around.topics)
        self._heard_until: dict[str, Instant] = {}
        """By when each member must be heard of."""
        self._revoke_until: dict[str, tuple[int, Instant]] = {}
        """By when a member must have given up what it shall not have, and in which epoch."""
        self._owes_until: dict[str, Instant] = {}
        """By when one of the classic protocol must have joined again, or asked for its share."""
        self._unchanged_until: dict[str, Instant] = {}
        """How long to wait for the confirmation of a member that owned just what it was left with
        when it was asked to give something up."""
        self._last_owned: dict[str, set[tuple[Uuid, int]]] = {}
        """What each member listed when it last told what it owns, as far as it told this broker."""
        self._patterns: dict[str, Pattern] = {}
        self._topics_seen: int | None = None
        """The version of the topics that the log is true of."""

    # -- as every group

    @property
    def state(self) -> str:
        return self.log.state

    @property
    def is_empty(self) -> bool:
        return self.log.is_empty

    def subscribed(self) -> frozenset[str]:
        return self.log.topics()

    def check_commit(
        self,
        _now: Instant,
        who: Who,
        offsets: Sequence[OffsetToCommit],
        *,
        in_transaction: bool = False,  # noqa: ARG002 -- both are alike here
    ) -> None:
        if who.generation < 0 and self.is_empty:
            return
        member = self._known(who.member_id)
        if who.generation != member.epoch:
            check_late_commit(member, who.generation, offsets)

    def check_old_commit(self, who: Who) -> None:
        member = self.log.members.get(who.member_id)
        if member is not None and member.classic is None:
            raise Rejected(
                ErrorCode.UNSUPPORTED_VERSION,
                "members of the consumer protocol commit by version 9 or above",
            )

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_epoch < 0 and member_id is None:
            return
        member = self._known(member_id or "")
        if member_epoch != member.epoch:
            raise Rejected(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"the member's epoch is {member.epoch}, not {member_epoch}",
            )

    def _known(self, member_id: str) -> Member:
        member = self.log.members.get(member_id)
        if member is None:
            raise Rejected(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{quoted(member_id)!r} is not in the group"
            )
        return member

    def forgotten(self) -> tuple[ConsumerRecord, ...]:
        return tuple(group_tombstones(self.log))

    def replay(self, record: ConsumerRecord) -> None:
        self.log.replay(record)

    def loaded(self, now: Instant) -> None:
        self.log.is_loaded = True
        for member in self.log.members.values():
            self._heard_of(now, member)
        self._then.note(self.log.topics())
        if not self.is_empty and self.log.state != STABLE:
            self.history.goes_on(now, self.log.epoch)

    def deadline(self) -> Instant | None:
        waits = [*self._heard_until.values(), *(until for _, until in self._revoke_until.values())]
        waits += self._owes_until.values()
        if self.history.look_at is not None:
            waits.append(self.history.look_at)
        return min(waits, default=None)

    def expire(self, now: Instant, draft: Draft) -> None:
        silent = [name for name, until in self._heard_until.items() if until <= now]
        late = [name for name in self._late(now) if name not in silent]
        if silent or late:
            why = Trigger.SESSION_TIMEOUT if silent else Trigger.REBALANCE_TIMEOUT
            self._take_out(now, [*silent, *late], why, draft)
        else:
            self.history.waits(now, [one.named for one in self._awaited()])

    def _late(self, now: Instant) -> list[str]:
        """Who has not done in time what it was told to."""
        due = [name for name, (_, until) in self._revoke_until.items() if until <= now]
        epochs = {name: self._revoke_until.pop(name)[0] for name in due}
        members = self.log.members
        owe = [name for name, until in self._owes_until.items() if until <= now]
        keep = [name for name, epoch in epochs.items() if _still_revokes(members[name], epoch)]
        return [*owe, *keep]

    def _awaited(self) -> list[Member]:
        """Who has yet to give something up; then, who has yet to take what is free."""
        members = [one for one in self.log.members.values() if one.epoch != LEFT_FOR_NOW]
        behind = [one for one in members if one.epoch < self.log.epoch]
        return behind or [one for one in members if one.state is not MemberState.STABLE]

    # -- heartbeats

    def heartbeat(
        self, now: Instant, asked: RequestId, request: ConsumerHeartbeat, draft: Draft
    ) -> None:
        """Rejected where the member may not say so."""
        check_request(request)
        if request.epoch < 0:
            self._leave(now, request, draft)
            draft.reply(asked, HeartbeatAnswer(request.member_id, request.epoch, 0))
            return
        before, is_new = self._member(request)
        after = _as_it_says(before, request)
        if after.regex is not None and after.regex not in self._patterns:
            self._patterns[after.regex] = pattern_of(after.regex)
        # Who joins has dropped whatever it was told before.
        owned = OwnedReport(self._owned_by(now, before, request), may_lag=request.epoch != 0)
        arrived = self._take_in(now, before, after, owned, draft, is_new=is_new)
        self._wait_for_confirmation(now, arrived, request)
        tells = request.epoch == 0 or request.is_full or arrived.assigned != before.assigned
        answer = HeartbeatAnswer(
            arrived.member_id,
            arrived.epoch,
            self._of_group("heartbeat.interval.ms"),
            arrived.assigned if tells else None,
        )
        draft.reply(asked, answer)

    def _owned_by(
        self, now: Instant, member: Member, request: ConsumerHeartbeat
    ) -> Sequence[tuple[Uuid, int]] | None:
        """What it says that it owns, or shows by saying nothing new for long enough.

        The same list in a full request is nothing new: a client sends all it knows after a lost
        answer, also while it has yet to apply what it was told before. In another request a list
        says that something was applied.
        """
        name = member.member_id
        until, kept = self._unchanged_until.get(name), pairs_of(member.assigned)
        if request.owned is not None and not self._repeats(request, name, kept):
            return request.owned
        return None if until is None or now < until else tuple(kept)

    def _repeats(self, request: ConsumerHeartbeat, name: str, kept: set[tuple[Uuid, int]]) -> bool:
        """Whether a list of just what a member keeps is no news of it."""
        if request.epoch == 0 or not request.is_full or set(request.owned or ()) != kept:
            return False
        return name in self._unchanged_until or self._last_owned.get(name) == kept

    def _wait_for_confirmation(
        self, now: Instant, member: Member, request: ConsumerHeartbeat
    ) -> None:
        """Clients do not confirm an assignment that changes nothing for them.

        So a member that owns just what it was left with may never say so. It may also be about to
        apply more, and then says that first. If it says nothing new for a session, it owns no more.
        """
        name = member.member_id
        if request.owned is not None:
            self._last_owned[name] = set(request.owned)
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._unchanged_until.pop(name, None)
        elif request.owned is not None:
            if set(request.owned) != pairs_of(member.assigned):
                self._unchanged_until.pop(name, None)
            elif name not in self._unchanged_until:
                session_ms = self._of_group("session.timeout.ms")
                wait_ms = min(session_ms, member.rebalance_timeout_ms // 2)
                self._unchanged_until[name] = Instant(now + ms(wait_ms))

    def _take_in(
        self,
        now: Instant,
        before: Member,
        after: Member,
        owned: OwnedReport,
        draft: Draft,
        *,
        is_new: bool,
    ) -> Member:
        """What a member says of itself, and what follows of it; how far it has come then."""
        step = self._step(now, draft)
        joins = before.member_id not in self.log.members
        if is_new:
            self._admit(before, after, step)
        elif after != before:
            step.put(after)
        self._follow(now, step, self._cause(before, after, joins=joins))
        arrived = reconciled(
            after,
            target_epoch=step.epoch,
            target=step.target.get(after.member_id, NOTHING),
            owned=owned,
            # Of a static member that came back, its former life's partitions are its own.
            is_free=partial(self.log.is_free, member=before.member_id),
            subscribed=step.topic_ids(after) if _reads_other(before, after) else None,
        )
        if arrived != after:
            step.place(arrived)
            self._tell_how_far(now, step, arrived)
        self._heard_of(now, arrived)
        return arrived

    def _of_group(self, name: str) -> int:
        """A setting, which a group may have otherwise than its broker."""
        given = self._topics.configs_of(self.log.group).get(f"consumer.{name}")
        return int(self._settings[f"group.consumer.{name}"] if given is None else given)

    def _step(self, now: Instant, draft: Draft) -> Step:
        return Step(self.log, self._topics, draft, self._wall_ms(now))

    def _member(self, request: ConsumerHeartbeat) -> tuple[Member, bool]:
        """Who says this, as the log knows it, and whether it has yet to be admitted."""
        if request.epoch != 0:
            member = member_named(self.log, request.member_id, request.instance_id)
            check_epoch(member, request)
            return member, False
        known = self.log.members.get(request.member_id)
        if request.instance_id is not None:
            static = member_of_instance(self.log, request.instance_id)
            if static is not None:
                check_released(static, request)
                if _comes_back(static, request.member_id):
                    return static, True
            known = static or known
        if known is not None:
            return known, False
        self._check_room()
        return Member(request.member_id), True

    def _check_room(self, *, also: int = 0) -> None:
        """Rejected where it is full, or as many others were promised a place."""
        if max(len(self.log.members), also) >= self._settings["group.consumer.max.size"]:
            raise Rejected(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group has {len(self.log.members)} members; "
                "group.consumer.max.size allows no more",
            )

    def _admit(self, before: Member, after: Member, step: Step) -> None:
        if _comes_back(before, after.member_id):
            step.replace(before, after)
            self._forget([before.member_id])
        else:
            step.put(after)

    def _cause(self, before: Member, after: Member, *, joins: bool) -> Cause | None:
        """Why the group's epoch moves, where it does by what this member says."""
        if joins:
            return Cause(Trigger.JOIN, after.named)
        if _wants(after) == _wants(before):
            return None
        if before.assignor != after.assignor:
            asks = f"it asks for the assignor {after.assignor}"
            return Cause(Trigger.SUBSCRIPTION, after.named, detail=asks)
        if before.regex != after.regex and after.regex is not None:
            fits = f"it reads what fits {after.regex}"
            return Cause(Trigger.SUBSCRIPTION, after.named, detail=fits)
        why, detail = of_topics(self._then, frozenset(before.topics), frozenset(after.topics))
        return Cause(why, after.named, detail=detail)

    def _leave(self, now: Instant, request: ConsumerHeartbeat, draft: Draft) -> None:
        member = member_named(self.log, request.member_id, request.instance_id)
        if request.epoch == LEFT_FOR_NOW:
            # It reads nothing any more: what it was asked to give up is free for others.
            gone = replace(member, epoch=LEFT_FOR_NOW, revoking={})
            self._step(now, draft).place(gone)
            self._revoke_until.pop(member.member_id, None)
        else:
            self._take_out(now, [member.member_id], Trigger.LEAVE, draft)

    def _take_out(
        self, now: Instant, names: list[str], why: Trigger, draft: Draft, reason: str = ""
    ) -> None:
        """They are gone: what they had goes to others at once."""
        gone = [self.log.members[name].named for name in names]
        others = f"and {len(gone) - 1} more at once" if len(gone) > 1 else ""
        cause = Cause(why, gone[0], reason, others)
        if self._is_left_to_classic(names):
            made = as_classic(self.log, names, self._around, now, draft)
            made.begin_anew(now, cause, draft)
            return
        step = self._step(now, draft)
        step.take_out(names)
        self._forget(names)
        self._follow(now, step, cause)

    def _is_left_to_classic(self, gone: Collection[str]) -> bool:
        """Whether only members of the classic protocol are left, and the group may be theirs."""
        left = [one for name, one in self.log.members.items() if name not in gone]
        return (
            0 < len(left) <= self._settings["group.max.size"]
            and all(one.classic is not None for one in left)
            and self._settings["group.consumer.migration.policy"] in DOWNGRADES
        )

    def _follow(self, now: Instant, step: Step, cause: Cause | None) -> None:
        """Give the group a new epoch and a new target, where something moved."""
        if cause is None and self._topics_seen == self._topics.version:
            return
        used = {one.regex for one in step.members.values() if one.regex is not None}
        known = self._patterns
        self._patterns = {one: known.get(one) or stored_pattern_of(one) for one in sorted(used)}
        step.follow_topics(self._patterns)
        step.move_epoch(changed=cause is not None)
        step.make_target()
        self._topics_seen = self._topics.version
        if step.epoch > self.log.epoch:
            self._tell_why(now, step, cause)

    def _tell_why(self, now: Instant, step: Step, cause: Cause | None) -> None:
        topics = step.topics()
        if cause is None:
            why, detail = self._then.change(topics | self._then.names) or (Trigger.TOPIC, "")
            cause = Cause(why, detail=detail)
        self._then.note(topics)
        self.history.began(cause, now, step.epoch, len(step.members))
        if not step.members:
            self.history.gathered(now, 0, NOBODY)
            self.history.ended()

    def _tell_how_far(self, now: Instant, step: Step, last: Member) -> None:
        """All are in the epoch, or all have what they shall have: this one was the last."""
        if not self.history.is_open:
            return
        members = [one for one in step.members.values() if one.epoch != LEFT_FOR_NOW]
        if all(one.epoch == step.epoch for one in members):
            self.history.gathered(now, len(members), last.named)
            if all(one.state is MemberState.STABLE for one in members):
                self.history.ended(last.named)

    def _forget(self, names: list[str]) -> None:
        for name in names:
            self._heard_until.pop(name, None)
            self._unchanged_until.pop(name, None)
            self._last_owned.pop(name, None)
            self._revoke_until.pop(name, None)
            self._owes_until.pop(name, None)

    def _heard_of(self, now: Instant, member: Member) -> None:
        name, side = member.member_id, member.classic
        session_ms = self._of_group("session.timeout.ms")
        if side is None:
            self._owes_until.pop(name, None)
        else:
            session_ms = side.session_timeout_ms
        self._heard_until[name] = Instant(now + ms(session_ms))
        if member.state is not MemberState.UNREVOKED_PARTITIONS or side is not None:
            self._revoke_until.pop(name, None)
        elif name not in self._revoke_until or self._revoke_until[name][0] != member.epoch:
            until = Instant(now + ms(member.rebalance_timeout_ms))
            self._revoke_until[name] = (member.epoch, until)


def _wants(member: Member) -> tuple[object, ...]:
    """What of a member the target is made of."""
    return (member.topics, member.regex, member.assignor, member.instance_id)


def _reads_other(before: Member, after: Member) -> bool:
    """Whether it subscribes to something else than before."""
    return (before.topics, before.regex) != (after.topics, after.regex)


def _comes_back(member: Member, member_id: str) -> bool:
    """Whether this is a static member in a new life."""
    return member.epoch == LEFT_FOR_NOW or member.member_id != member_id


def come_back(member: Member, member_id: str) -> Member:
    """It begins again, with all that it had and was not asked back."""
    return replace(
        member,
        member_id=member_id,
        epoch=0,
        previous_epoch=0,
        state=MemberState.STABLE,
        revoking={},
    )


def _still_revokes(member: Member, epoch: int) -> bool:
    return member.epoch == epoch and member.state is MemberState.UNREVOKED_PARTITIONS


def _as_it_says(member: Member, request: ConsumerHeartbeat) -> Member:
    """The member with what the heartbeat tells anew; a static one that came back begins again."""
    if _comes_back(member, request.member_id):
        member = come_back(member, request.member_id)
    told: dict[str, Any] = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "assignor": request.assignor,
        "client_id": request.client_id,
        "client_host": request.client_host,
        "topics": None if request.topics is None else tuple(sorted(set(request.topics))),
        "rebalance_timeout_ms": (
            None if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
    }
    told = {name: value for name, value in told.items() if value is not None}
    if request.regex is not None:
        told["regex"] = request.regex or None
    return replace(member, classic=None, **told)
