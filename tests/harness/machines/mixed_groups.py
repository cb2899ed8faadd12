"""A coordinator over a log in memory, and members of both protocols that behave as clients do."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from harness.machines.classic_clients import subscription
from harness.machines.consumer_groups import SETTINGS, TopicsInMemory, topic_id
from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups import codec
from tidelog.node.groups import requests as ask
from tidelog.node.groups.classic import ClassicGroup
from tidelog.node.groups.consumer_mixed import MixedGroup
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat
from tidelog.node.groups.embedded import (
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from tidelog.node.groups.group import Around
from tidelog.node.groups.history import Told
from tidelog.node.groups.records_consumer import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerRecord,
    MemberState,
)
from tidelog.node.groups.shard import GroupShard
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode, Rejected

GROUP = "g"
SESSION_MS = 20_000
REBALANCE_MS = 30_000
SHARD_SETTINGS: dict[str, int | str] = {
    **SETTINGS,
    "group.initial.rebalance.delay.ms": 0,
    "group.max.session.timeout.ms": 1_800_000,
    "group.member.disconnect.ms": 0,
    "group.min.session.timeout.ms": 6_000,
    "offsets.retention.check.interval.ms": 600_000,
    "offsets.retention.minutes": 10_080,
}
TAKEN_AS_LOST = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


class Coordinator:
    """Decides, writes and replays; `restart` is a fail-over."""

    def __init__(self, topics: TopicsInMemory, **settings: int | str) -> None:
        self.topics = topics
        self.settings = {**SHARD_SETTINGS, **settings}
        self.now = Instant(0)
        self.written: list[tuple[bytes, bytes | None]] = []
        self.told: list[Told] = []
        self.asked = 0
        self.answers: dict[RequestId, Any] = {}
        self.shard = self._empty()
        self.shard.loaded(self.now)

    def _empty(self) -> GroupShard:
        around = Around(self.settings, self.topics, lambda now: now // ms(1), self.told.append)
        return GroupShard(around)

    @property
    def group(self) -> ClassicGroup | MixedGroup | None:
        found = self.shard._groups.get(GROUP)
        assert found is None or isinstance(found, ClassicGroup | MixedGroup)
        return found

    def ask(self, request: object) -> RequestId:
        """What it is answered is in `answers` as soon as it is; a refusal at once."""
        self.asked += 1
        asked = RequestId(self.asked)
        try:
            decision = self.shard.decide(self.now, asked, request)
        except Rejected as refused:
            self.answers[asked] = Refusal(refused.code, refused.detail)
        else:
            self._take(decision)
        return asked

    def _take(self, decision: Any) -> None:
        for record in decision.records:
            check_revocation(record)
            key, value = codec.pair(record)
            self.written.append((key, value))
            self._replay(key, value)
        self.answers.update(decision.replies)

    def _replay(self, key: bytes, value: bytes | None) -> None:
        record = codec.read(key, value)
        assert record is not None, key
        self.shard.replay(record)

    def answer(self, request: object) -> Any:
        """Of what is answered at once."""
        return self.answers.pop(self.ask(request))

    def wait(self, seconds: float) -> None:
        """Time passes, and what is due is done."""
        end = Instant(self.now + ms(seconds * 1000))
        while (due := self.shard.deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self._take(self.shard.expire(self.now))
        self.now = end

    def restart(self, *, compacted: bool = False) -> None:
        """Another coordinator reads the log, which may hold the last record of each key only. Who
        waits is answered nothing."""
        if compacted:
            last = {key: place for place, (key, _) in enumerate(self.written)}
            self.written = [self.written[place] for place in sorted(last.values())]
        self.shard = self._empty()
        for key, value in self.written:
            self._replay(key, value)
        self.shard.loaded(self.now)
        self.answers.clear()

    def number(self) -> int:
        """The generation, or the epoch."""
        group = self.group
        if group is None:
            return 0
        return group.generation if isinstance(group, ClassicGroup) else group.log.epoch


def check_revocation(record: object) -> None:
    """A member that is asked to give something up is in the state that says so."""
    if not isinstance(record, ConsumerRecord):
        return
    said = record.value
    if isinstance(said, ConsumerGroupCurrentMemberAssignmentValue):
        is_asked = bool(said.partitions_pending_revocation)
        assert not is_asked or said.state == MemberState.UNREVOKED_PARTITIONS, said


class Member:
    """What members of both protocols have in common, for who watches them."""

    def __init__(
        self, coordinator: Coordinator, name: str, *topics: str, instance: str | None = None
    ) -> None:
        self.coordinator = coordinator
        self.name = name
        self.topics = topics
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.uses: frozenset[tuple[str, int]] = frozenset()
        """What it reads now."""
        self.is_fenced = False

    def turn(self, *, answer_lost: bool = False) -> None:
        """What a client does next of its own accord."""
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    def who(self) -> ask.Who:
        return ask.Who(self.member_id, self.instance, self.generation)

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> bool:
        """Whether it was taken."""
        rows = tuple(
            ask.OffsetToCommit(name, topic_id(name), partition, offset, -1, self.name)
            for (name, partition), offset in offsets.items()
        )
        answer = self.coordinator.answer(ask.CommitOffsets(GROUP, self.who(), rows))
        return answer is None

    def may_commit(self) -> frozenset[tuple[str, int]]:
        """What of it the coordinator would take a commit of; a rebalance may be under way."""
        group, found = self.coordinator.group, set()
        for name, partition in self.uses if group is not None else ():
            row = ask.OffsetToCommit(name, topic_id(name), partition, 0, -1, "")
            try:
                assert group is not None
                group.check_commit(self.coordinator.now, self.who(), (row,), in_transaction=True)
            except Rejected:
                continue
            found.add((name, partition))
        return frozenset(found)


class Classic(Member):
    """A consumer of the classic protocol, eager or cooperative."""

    def __init__(
        self,
        coordinator: Coordinator,
        name: str,
        *topics: str,
        instance: str | None = None,
        cooperative: bool = False,
    ) -> None:
        super().__init__(coordinator, name, *topics, instance=instance)
        self.cooperative = cooperative
        self.is_joined = False
        self.pending: RequestId | None = None
        self._then: Callable[[Any], None] = self._joined

    def turn(self, *, answer_lost: bool = False) -> None:
        if self.is_fenced:
            return
        if self.pending is None:
            self._speak()
        asked = self.pending
        assert asked is not None, "it has just asked"
        if asked in self.coordinator.answers:
            self.pending = None
            answer = self.coordinator.answers.pop(asked)
            if not answer_lost:
                self._then(answer)
        else:
            self._look_for_fail_over()

    def _look_for_fail_over(self) -> None:
        """Its connection ended with the coordinator: it asks again."""
        group = self.coordinator.group
        waits = isinstance(group, ClassicGroup) and any(
            self.pending in {one.joining, one.syncing} for one in group.members
        )
        if not waits:
            self.pending = None

    def _speak(self) -> None:
        if self.is_joined:
            self._ask(ask.Heartbeat(GROUP, self.who()), self._beaten)
        else:
            if not self.cooperative:
                self.uses = frozenset()
            self._ask(self._join(), self._joined)

    def _ask(self, request: object, then: Callable[[Any], None]) -> None:
        self._then = then
        self.pending = self.coordinator.ask(request)

    def _join(self) -> ask.JoinGroup:
        owned: dict[str, list[int]] = {}
        for name, partition in sorted(self.uses):
            owned.setdefault(name, []).append(partition)
        said = subscription(*self.topics, owned=owned if self.cooperative else None)
        return ask.JoinGroup(
            group=GROUP,
            who=ask.Who(self.member_id, self.instance, -1),
            client_id=self.name,
            client_host="/127.0.0.1",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=(("cooperative" if self.cooperative else "eager", said),),
            needs_known_id=True,
            may_skip_assignment=True,
            new_member_id=f"{self.name}-{self.coordinator.asked}",
        )

    def _joined(self, answer: Any) -> None:
        if isinstance(answer, ask.JoinRefused):
            self.member_id = answer.member_id
        elif isinstance(answer, Refusal):
            self._refused(answer.code)
        else:
            self.member_id, self.generation = answer.member_id, answer.generation
            shares: dict[str, bytes] = {}
            if answer.leader == answer.member_id and not answer.skip_assignment:
                shares = self._shares(answer.members)
            request = ask.SyncGroup(
                GROUP, self.who(), "consumer", answer.protocol, tuple(shares.items())
            )
            self._ask(request, self._synced)

    def _shares(self, members: Sequence[ask.JoinedMember]) -> dict[str, bytes]:
        """Of a cooperative group nothing that another has not given up."""
        wants = {one.member_id: read_subscription(one.subscription) for one in members}
        said = {member: one for member, one in wants.items() if one is not None}
        owner = {place: member for member, one in said.items() for place in places(one.owned)}
        shares: dict[str, dict[str, list[int]]] = {one: {} for one in wants}
        for (topic, partition), taker in in_turns(self.coordinator.topics.sizes, said):
            if owner.get((topic, partition), taker) == taker:
                shares[taker].setdefault(topic, []).append(partition)
        return {one: write_assignment(1, share) for one, share in shares.items()}

    def _synced(self, answer: Any) -> None:
        if isinstance(answer, Refusal):
            self._refused(answer.code)
            return
        found = read_assignment(answer.assignment)
        given = frozenset(places(found or {}))
        gave_up = self.uses - given
        self.uses = given
        # Who gave something up joins again: then it can be given to others.
        self.is_joined = not (self.cooperative and gave_up)

    def _beaten(self, answer: Any) -> None:
        if isinstance(answer, Refusal):
            self._refused(answer.code)

    def _refused(self, code: ErrorCode) -> None:
        self.is_joined = False
        if code in TAKEN_AS_LOST:
            self.uses = frozenset()
            self.generation = -1
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.is_fenced, self.uses = True, frozenset()
        else:
            assert code in {
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            }, code

    def leave(self) -> None:
        """A static member just stops."""
        self.uses = frozenset()
        if self.instance is None and self.member_id:
            self.coordinator.ask(
                ask.LeaveGroup(GROUP, (ask.LeavingMember(self.member_id, None, "bye"),))
            )


class Modern(Member):
    """A consumer of the consumer protocol."""

    def __init__(
        self, coordinator: Coordinator, name: str, *topics: str, instance: str | None = None
    ) -> None:
        super().__init__(coordinator, name, *topics, instance=instance)
        self.member_id = name
        self.generation = 0
        self._says_all = True

    def turn(self, *, answer_lost: bool = False) -> None:
        if self.is_fenced:
            return
        says = self._says_all or self.generation == 0
        request = ConsumerHeartbeat(
            group=GROUP,
            member_id=self.member_id,
            epoch=self.generation,
            instance_id=self.instance,
            rebalance_timeout_ms=REBALANCE_MS if says else -1,
            topics=tuple(self.topics) if says else None,
            owned=tuple((topic_id(name), one) for name, one in sorted(self.uses)),
            client_id=self.name,
            client_host="/127.0.0.1",
        )
        answer = self.coordinator.answer(request)
        self._says_all = answer_lost
        if answer_lost:
            return
        if isinstance(answer, Refusal):
            self._refused(answer.code)
            return
        self.generation = answer.epoch
        if answer.assigned is not None:
            self.uses = frozenset(
                (name, partition)
                for topic, partitions in answer.assigned.items()
                if (name := self.coordinator.topics.name_of(topic)) is not None
                for partition in partitions
            )

    def _refused(self, code: ErrorCode) -> None:
        if code in {ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID}:
            self.is_fenced = code is ErrorCode.FENCED_INSTANCE_ID
        else:
            assert code in {
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.GROUP_ID_NOT_FOUND,
            }, code
        self.uses, self.generation, self._says_all = frozenset(), 0, True

    def leave(self) -> None:
        self.uses = frozenset()
        if self.generation > 0:
            epoch = -1 if self.instance is None else -2
            self.coordinator.ask(
                ConsumerHeartbeat(
                    group=GROUP, member_id=self.member_id, epoch=epoch, instance_id=self.instance
                )
            )


def places(owned: Mapping[str, Iterable[int]]) -> Iterator[tuple[str, int]]:
    for topic, partitions in owned.items():
        yield from ((topic, one) for one in partitions)


def in_turns(
    sizes: Mapping[str, int], members: Mapping[str, Subscription]
) -> Iterator[tuple[tuple[str, int], str]]:
    """Each partition, and who shall have it."""
    takers = {name: sorted(m for m, one in members.items() if name in one.topics) for name in sizes}
    everything = places({name: range(sizes[name]) for name in sorted(sizes) if takers[name]})
    for turn, place in enumerate(everything):
        yield place, takers[place[0]][turn % len(takers[place[0]])]


def turns(members: Iterable[Member], rounds: int = 12) -> None:
    """Until nobody has anything to say."""
    everyone = list(members)
    for _ in range(rounds):
        for member in everyone:
            member.turn()
