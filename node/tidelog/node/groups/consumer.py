"""A group of the consumer protocol: decides on what its members say, in the light of its log.

A heartbeat is all a member ever sends. It may move the group's epoch, then a new target is made at
once, and the member itself goes one step towards it. The others do with their own heartbeats.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups.consumer_checks import (
    check_epoch,
    check_released,
    check_request,
    member_named,
    member_of_instance,
    pattern_of,
)
from tidelog.node.groups.consumer_log import NOTHING, LoggedGroup, group_tombstones
from tidelog.node.groups.consumer_member import LEFT_FOR_NOW, Member, reconciled
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat, HeartbeatAnswer
from tidelog.node.groups.consumer_step import Step
from tidelog.node.groups.group import Draft
from tidelog.node.groups.records_consumer import ConsumerRecord, MemberState
from tidelog.node.groups.requests import Who
from tidelog.node.groups.topics import Topics
from tidelog.wire.errors import ErrorCode, Rejected

if TYPE_CHECKING:
    from tidelog.node.groups.patterns import Pattern

PROTOCOL_TYPE: Final = "consumer"


class ConsumerGroup:
    """One group. What it must not forget is in `log`; who was heard of when is here.

    Invariant: every member of the log has a deadline once the log is loaded.
    """

    kind = "Consumer"
    """As ListGroups names it."""
    protocol_type = PROTOCOL_TYPE
    is_vain = False
    empty_since_ms = None
    """Offsets of these groups are kept for so long since they were committed, as Kafka does."""

    def __init__(
        self,
        group: str,
        settings: Mapping[str, Any],
        topics: Topics,
        wall_ms: Callable[[Instant], int],
    ) -> None:
        self.log = LoggedGroup(group)
        self._settings = settings
        self._topics = topics
        self._wall_ms = wall_ms
        self._heard_until: dict[str, Instant] = {}
        """By when each member must be heard of."""
        self._revoke_until: dict[str, tuple[int, Instant]] = {}
        """By when a member must have given up what it shall not have, and in which epoch."""
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

    def check_commit(self, _now: Instant, who: Who) -> None:
        if who.generation >= 0 or not self.is_empty:
            self._check_member(who.member_id, who.generation)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_epoch >= 0 or member_id is not None:
            self._check_member(member_id or "", member_epoch)

    def _check_member(self, member_id: str, epoch: int) -> None:
        member = self.log.members.get(member_id)
        if member is None:
            raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id!r} is not in the group")
        if epoch != member.epoch:
            raise Rejected(
                ErrorCode.STALE_MEMBER_EPOCH, f"the member's epoch is {member.epoch}, not {epoch}"
            )

    def forgotten(self) -> tuple[ConsumerRecord, ...]:
        return tuple(group_tombstones(self.log))

    def replay(self, record: ConsumerRecord) -> None:
        self.log.replay(record)

    def loaded(self, now: Instant) -> None:
        for member in self.log.members.values():
            self._heard_of(now, member)

    def deadline(self) -> Instant | None:
        waits = [*self._heard_until.values(), *(until for _, until in self._revoke_until.values())]
        return min(waits, default=None)

    def expire(self, now: Instant, draft: Draft) -> None:
        gone = [name for name, until in self._heard_until.items() if until <= now]
        late = [name for name, (_, until) in self._revoke_until.items() if until <= now]
        for name in late:
            epoch, _ = self._revoke_until.pop(name)
            member = self.log.members[name]
            if name not in gone and _still_revokes(member, epoch):
                gone.append(name)
        if gone:
            self._take_out(gone, self._step(now, draft))

    # -- heartbeats

    def heartbeat(
        self, now: Instant, asked: RequestId, request: ConsumerHeartbeat, draft: Draft
    ) -> None:
        """Rejected where the member may not say so."""
        check_request(request)
        step = self._step(now, draft)
        if request.epoch < 0:
            self._leave(request, step)
            draft.reply(asked, HeartbeatAnswer(request.member_id, request.epoch, 0))
            return
        before, is_new = self._member(request)
        joins = before.member_id not in self.log.members
        after = _as_it_says(before, request)
        if after.regex is not None and after.regex not in self._patterns:
            self._patterns[after.regex] = pattern_of(after.regex)
        if is_new:
            self._admit(before, after, step)
        elif after != before:
            step.put(after)
        self._follow(step, changed=joins or _wants(after) != _wants(before))
        arrived = reconciled(
            after,
            target_epoch=step.epoch,
            target=step.target.get(after.member_id, NOTHING),
            owned=request.owned,
            is_free=self.log.is_free,
        )
        if arrived != after:
            step.place(arrived)
        self._heard_of(now, arrived)
        tells = request.epoch == 0 or request.is_full or arrived.assigned != before.assigned
        answer = HeartbeatAnswer(
            arrived.member_id,
            arrived.epoch,
            self._of_group("heartbeat.interval.ms"),
            arrived.assigned if tells else None,
        )
        draft.reply(asked, answer)

    def _of_group(self, name: str) -> int:
        """A setting, which a group may have otherwise than its broker."""
        given = self._topics.configs_of(self.log.group).get(f"consumer.{name}")
        return int(self._settings[f"group.consumer.{name}"] if given is None else given)

    def _step(self, now: Instant, draft: Draft) -> Step:
        return Step(self.log, self._topics, draft, self._wall_ms(now))

    def _member(self, request: ConsumerHeartbeat) -> tuple[Member, bool]:
        """Who says this, as the log knows it, and whether it has yet to be admitted."""
        if request.epoch != 0:
            member = member_named(self.log, request)
            check_epoch(member, request)
            return member, False
        known = self.log.members.get(request.member_id)
        if request.instance_id is not None:
            static = member_of_instance(self.log, request.instance_id)
            if static is not None:
                check_released(static, request)
            if static is not None and static.epoch == LEFT_FOR_NOW:
                return static, True
            known = static
        if known is not None:
            return known, False
        if len(self.log.members) >= self._settings["group.consumer.max.size"]:
            raise Rejected(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group has {len(self.log.members)} members; "
                "group.consumer.max.size allows no more",
            )
        return Member(request.member_id), True

    def _admit(self, before: Member, after: Member, step: Step) -> None:
        if before.epoch == LEFT_FOR_NOW:
            step.replace(before, after)
            self._forget([before.member_id])
        else:
            step.put(after)

    def _leave(self, request: ConsumerHeartbeat, step: Step) -> None:
        member = member_named(self.log, request)
        if request.epoch == LEFT_FOR_NOW:
            step.place(replace(member, epoch=LEFT_FOR_NOW))
            self._revoke_until.pop(member.member_id, None)
        else:
            self._take_out([member.member_id], step)

    def _take_out(self, names: list[str], step: Step) -> None:
        """They are gone: what they had goes to others at once."""
        step.take_out(names)
        self._forget(names)
        self._follow(step, changed=True)

    def _follow(self, step: Step, *, changed: bool) -> None:
        """Give the group a new epoch and a new target, where something moved."""
        if not changed and self._topics_seen == self._topics.version:
            return
        used = {one.regex for one in step.members.values() if one.regex is not None}
        self._patterns = {one: self._patterns.get(one) or pattern_of(one) for one in sorted(used)}
        step.follow_topics(self._patterns)
        step.move_epoch(changed=changed)
        step.make_target()
        self._topics_seen = self._topics.version

    def _forget(self, names: list[str]) -> None:
        for name in names:
            self._heard_until.pop(name, None)
            self._revoke_until.pop(name, None)

    def _heard_of(self, now: Instant, member: Member) -> None:
        name = member.member_id
        session_ms = self._of_group("session.timeout.ms")
        self._heard_until[name] = Instant(now + ms(session_ms))
        if member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._revoke_until.pop(name, None)
        elif name not in self._revoke_until or self._revoke_until[name][0] != member.epoch:
            until = Instant(now + ms(member.rebalance_timeout_ms))
            self._revoke_until[name] = (member.epoch, until)


def _wants(member: Member) -> tuple[object, ...]:
    """What of a member the target is made of."""
    return (member.topics, member.regex, member.assignor, member.instance_id)


def _still_revokes(member: Member, epoch: int) -> bool:
    return member.epoch == epoch and member.state is MemberState.UNREVOKED_PARTITIONS


def _as_it_says(member: Member, request: ConsumerHeartbeat) -> Member:
    """The member with what the heartbeat tells anew; a static one that came back begins again."""
    if member.epoch == LEFT_FOR_NOW:
        member = replace(
            member,
            member_id=request.member_id,
            epoch=0,
            previous_epoch=0,
            state=MemberState.STABLE,
            revoking={},
        )
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
    return replace(member, **told)
