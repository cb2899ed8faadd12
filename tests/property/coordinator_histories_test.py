"""Any history of requests, deaths, lost connections and slow disks keeps what was promised."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harness.machines.controllers import check_moved, replayed, through_snapshot, topic
from harness.machines.conversations import CALL_MS, Conversation
from harness.machines.outcomes import Outcome
from tidelog.coordinator.controller.requests import BrokerLost
from tidelog.kernel.ids import NO_LEADER, BrokerId, Epoch, Uuid
from tidelog.kernel.limits import PRODUCER_ID_BLOCK
from tidelog.node.metadata.link import IdBlock
from tidelog.wire.control import IsrChange
from tidelog.wire.errors import ErrorCode
from tidelog.wire.metadata_records import (
    BrokerUnregistered,
    ConfigChanged,
    ControllerActivated,
    MetadataRecord,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
    StopKind,
    TopicCreated,
    TopicDeleted,
)

NAMES = ("a", "b", "c.d", "c_d")
SETTING, BROKERS_SETTING = "flush.messages", "log.flush.interval.messages"
BROKERS = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(
        st.just("create"), BROKERS, st.sampled_from(NAMES), st.integers(-1, 3), st.integers(-1, 3)
    ),
    st.tuples(st.just("delete"), BROKERS, st.lists(st.sampled_from(NAMES), min_size=1, max_size=2)),
    st.tuples(
        st.just("reassign"),
        BROKERS,
        st.sampled_from(NAMES),
        st.none() | st.lists(BROKERS, min_size=1, unique=True),
    ),
    st.tuples(st.just("grow"), BROKERS, st.sampled_from(NAMES), st.integers(1, 6)),
    st.tuples(
        st.just("configure"),
        BROKERS,
        st.sampled_from(("", *NAMES)),
        st.sampled_from(("1", "2", None)),
    ),
    st.tuples(st.just("allocate"), BROKERS),
    st.tuples(st.just("deliver"), st.integers(1, 12)),
    st.tuples(st.just("force"), st.integers(1, 3)),
    st.tuples(st.just("settle")),
    st.tuples(st.just("kill coordinator"), st.integers(0, 3)),
    st.tuples(st.just("start coordinator")),
    st.tuples(st.just("kill broker"), BROKERS),
    st.tuples(st.just("start broker"), BROKERS, st.sampled_from(StopKind)),
    st.tuples(st.just("leave"), BROKERS),
    st.tuples(st.just("unregister"), BROKERS, st.integers(0, 3)),
    st.tuples(st.just("alter isr"), BROKERS, st.sets(BROKERS), st.booleans()),
    st.tuples(st.just("hang broker"), BROKERS),
    st.tuples(st.just("break connection"), BROKERS),
    st.tuples(st.just("wait"), st.sampled_from([1, 100, 300, 500, 5_000])),
)


class History:
    """Carries a drawn history out and remembers what was answered."""

    def __init__(self) -> None:
        self.talk = Conversation()
        self.creations: list[tuple[str, Outcome]] = []
        self.deletions: list[tuple[list[str], Outcome]] = []
        self.growths: list[tuple[str, int, Outcome]] = []
        self.changes: list[tuple[str, str | None, Outcome]] = []
        self.blocks: list[Outcome] = []
        self.unregistered: list[Outcome] = []
        self.lives = Counter[int]()
        self.left = set[int]()
        """Leaving, or gone: whoever leaves does not come back in this life."""
        self.talk.start_coordinator()
        for broker in range(3):
            self.start(broker)
        self.talk.settle()

    def start(self, broker: int, stopped: StopKind = StopKind.KILLED) -> None:
        if BrokerId(broker) not in self.talk.sides:
            self.lives[broker] += 1
            self.left.discard(broker)
            self.talk.start_broker(broker, self.lives[broker], stopped=stopped)

    def step(self, what: str, *given: object) -> None:
        talk = self.talk
        match what, *given:
            case "deliver", int(number):
                for _ in range(number):
                    talk.deliver_one()
            case "force", int(number):
                talk.force(number)
            case "settle", *_:
                talk.settle()
            case "wait", int(milliseconds):
                talk.wait(milliseconds)
            case "kill coordinator", int(found):
                talk.kill_coordinator(found=found)
            case "start coordinator", *_:
                if talk.front is None:
                    talk.start_coordinator()
            case _, int(broker), *rest:
                self.step_of_broker(what, broker, *rest)
            case _:
                raise AssertionError(what)

    def step_of_broker(self, what: str, broker: int, *given: object) -> None:
        talk = self.talk
        if what == "start broker":
            (stopped,) = given
            assert isinstance(stopped, StopKind)
            self.start(broker, stopped)
        elif BrokerId(broker) not in talk.sides:
            return
        elif what == "kill broker":
            talk.kill_broker(broker)
        elif what == "hang broker":
            talk.tell(BrokerLost(BrokerId(broker), talk.sides[BrokerId(broker)].me.incarnation))
        elif what == "break connection":
            if talk.front is not None:
                talk.break_connection(broker)
        elif what == "leave":
            self.left.add(broker)
            talk.leave(broker)
        elif what == "allocate":
            self.blocks.append(talk.allocate(broker))
        else:
            self.call(what, broker, *given)

    def call(self, what: str, broker: int, *given: object) -> None:
        match what, *given:
            case "create", str(name), int(partitions), int(factor):
                created = self.talk.create(broker, topic(name, partitions, factor))
                self.creations.append((name, created))
            case "unregister", int(whom):
                self.unregistered.append(self.talk.unregister(broker, whom))
            case "alter isr", set(members), bool(late):
                self.alter_isr(broker, members, late=late)
            case "delete", list(names):
                self.deletions.append((names, self.talk.delete(broker, *dict.fromkeys(names))))
            case "reassign", str(name), replicas:
                assert replicas is None or isinstance(replicas, list)
                self.talk.reassign(broker, name, replicas)
            case "grow", str(name), int(count):
                self.growths.append((name, count, self.talk.grow(broker, name, count)))
            case "configure", str(resource), str() | None as value:
                name = SETTING if resource else BROKERS_SETTING
                changed = self.talk.configure(broker, resource, name, value)
                self.changes.append((resource, value, changed))
            case _:
                raise AssertionError(what)

    def alter_isr(self, broker: int, members: set[int], *, late: bool) -> None:
        """As of what this broker knows of what it leads; late ones are of the state before."""
        image = self.talk.sides[BrokerId(broker)].link.image
        changes = tuple(
            IsrChange(
                topic=topic.id,
                partition=partition,
                leader_epoch=view.leader_epoch,
                partition_epoch=Epoch(view.partition_epoch - late),
                isr=tuple((one, image.brokers[one].epoch) for one in wanted),
            )
            for topic in image.topics.values()
            for partition, view in enumerate(topic.partitions)
            if view.leader == broker
            for wanted in [
                [one for one in view.replicas if one in {*members, broker} & image.brokers.keys()]
            ]
        )
        self.talk.alter_isr(broker, *changes)

    def finish(self) -> None:
        """Everyone who can comes back, and everything that is under way ends."""
        if self.talk.front is None:
            self.talk.start_coordinator()
        for broker in self.left:
            if BrokerId(broker) in self.talk.sides:
                self.talk.kill_broker(broker)
        for broker in range(3):
            self.start(broker)
        for _ in range(3):
            self.talk.settle()
            self.talk.wait(CALL_MS)
        self.talk.settle()


def made(log: list[MetadataRecord], name: str) -> int:
    return sum(isinstance(one, TopicCreated) and one.name == name for one in log)


@given(st.lists(STEPS, min_size=5, max_size=60))
def test_any_history_keeps_what_was_promised(steps: list[tuple[object, ...]]) -> None:
    history = History()
    for what, *given_ in steps:
        assert isinstance(what, str)
        history.step(what, *given_)
    history.finish()
    talk = history.talk
    images_agree(talk)
    answers_are_true(history)
    refusals_are_true(history)
    changes_are_true(history)
    epochs = [one.epoch for one in talk.durable if isinstance(one, ControllerActivated)]
    assert epochs == sorted(set(epochs))
    assert talk.shard.image.active() == [0, 1, 2]
    views = [view for topic in talk.shard.image.topics.values() for view in topic.partitions]
    assert all(view.leader != NO_LEADER for view in views), "everyone is back"
    elections_are_clean(talk.durable)


def elections_are_clean(log: list[MetadataRecord]) -> None:
    """Whoever leads was in sync or eligible before, or the election is counted as lossy."""
    views: dict[tuple[Uuid, int], PartitionView] = {}
    for record in log:
        if isinstance(record, PartitionCreated):
            views[record.topic, record.partition] = record.view
        elif isinstance(record, PartitionChanged):
            before, after = views[record.topic, record.partition], record.view
            views[record.topic, record.partition] = after
            if after.leader not in {before.leader, NO_LEADER}:
                moved = before.is_moving and not after.is_moving
                trusted = after.leader in (*before.isr, *before.elr, *(after.isr if moved else ()))
                assert trusted == (after.lossy_elections == before.lossy_elections)
            check_moved(before, after)
            fewer = not set(before.replicas) <= set(after.replicas)
            news = fewer or after.leader != before.leader
            assert after.leader_epoch - before.leader_epoch == news


def images_agree(talk: Conversation) -> None:
    assert talk.front is not None
    image = replayed(talk.durable)
    assert talk.shard.image == image
    assert talk.front.feed.image == image
    assert through_snapshot(image) == image
    for side in talk.sides.values():
        assert side.link.image == image


def answers_are_true(history: History) -> None:
    sides = history.talk.sides.values()
    assert not [call for side in sides for call in side.link.open_calls()]
    log = history.talk.durable
    for name, outcome in history.creations:
        if was_done(outcome):
            assert made(log[: outcome.on_disk], name)
    created = Counter(name for name, outcome in history.creations if was_done(outcome))
    assert all(made(log, name) >= times for name, times in created.items())
    assert deletions_promised(history) <= deletions_in(log)
    told = sum(was_done(outcome) for outcome in history.unregistered)
    assert told <= sum(isinstance(one, BrokerUnregistered) for one in log)
    blocks = [one.result for one in history.blocks if isinstance(one.result, IdBlock)]
    firsts = sorted(block.first for block in blocks)
    assert all(after - before >= PRODUCER_ID_BLOCK for before, after in pairwise(firsts))


def refusals_are_true(history: History) -> None:
    """Who was told that it was not done did not do it: a call sent twice is decided once."""
    log = history.talk.durable
    maybe = Counter(name for name, outcome in history.creations if not was_refused(outcome))
    assert all(made(log, name) <= maybe[name] for name in NAMES)
    unknown = Counter(
        name
        for names, outcome in history.deletions
        if not isinstance(outcome.result, bytes)
        for name in dict.fromkeys(names)
    )
    assert deletions_in(log) <= deletions_promised(history) + unknown


def was_refused(outcome: Outcome) -> bool:
    return isinstance(outcome.result, bytes) and not was_done(outcome)


def changes_are_true(history: History) -> None:
    log = history.talk.durable
    for name, count, outcome in history.growths:
        if was_done(outcome):
            assert count in sizes(log[: outcome.on_disk], name)
    for resource, value, outcome in history.changes:
        if was_done(outcome):
            assert value in values(log[: outcome.on_disk], resource)


def sizes(log: list[MetadataRecord], name: str) -> set[int]:
    """How many partitions any topic of this name ever had."""
    topics = {one.topic for one in log if isinstance(one, TopicCreated) and one.name == name}
    return {
        one.partition + 1
        for one in log
        if isinstance(one, PartitionCreated) and one.topic in topics
    }


def values(log: list[MetadataRecord], resource: str) -> set[str | None]:
    """What the entry ever was; at first it is not set."""
    return {None} | {
        one.value for one in log if isinstance(one, ConfigChanged) and one.resource == resource
    }


def was_done(outcome: Outcome) -> bool:
    return isinstance(outcome.result, bytes) and outcome.codes() == [ErrorCode.NONE]


def deletions_promised(history: History) -> Counter[str]:
    return Counter(
        name
        for names, outcome in history.deletions
        if isinstance(outcome.result, bytes)
        for name, code in zip(dict.fromkeys(names), outcome.codes(), strict=True)
        if code == ErrorCode.NONE
    )


def deletions_in(log: list[MetadataRecord]) -> Counter[str]:
    names = {one.topic: one.name for one in log if isinstance(one, TopicCreated)}
    return Counter(names[one.topic] for one in log if isinstance(one, TopicDeleted))
