"""Metadata answers from blocks encoded before are the answers that would be made anew."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from harness.machines.brokers import ME, FakeClient, HandlerBench, led_here
from tidelog.kernel.ids import ZERO_UUID, Epoch, Partition, Uuid
from tidelog.node.api.topic_blocks import FORMS_MAX, TopicBlocks
from tidelog.node.metadata.image import MetadataImage, TopicView, snapshot
from tidelog.wire.frame import decode_response
from tidelog.wire.messages.k03_metadata import API, MetadataRequest, MetadataRequestTopic
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerUnfenced,
    ConfigChanged,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
    ResourceKind,
)

NOT_ASKED = -(2**31)


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


def frame(bench: HandlerBench, version: int, request: MetadataRequest) -> bytes:
    client = FakeClient()
    bench.begin(client, API, version, request)
    (answer,) = client.frames()
    return answer


def check(bench: HandlerBench, version: int, request: MetadataRequest) -> None:
    """The answer now, and the answer of a broker that remembers nothing."""
    known = frame(bench, version, request)
    kept, bench.broker.topic_blocks = bench.broker.topic_blocks, TopicBlocks()
    assert frame(bench, version, request) == known
    bench.broker.topic_blocks = kept


class Life:
    """What can happen to a cluster's metadata."""

    def __init__(self, bench: HandlerBench, random: Random) -> None:
        self.bench = bench
        self.random = random
        self.topics: dict[str, Uuid] = {}
        self.made = 0

    def step(self) -> None:
        deeds: list[Callable[[], None]] = [self.create, self.fence, self.load]
        if self.topics:
            deeds += [self.delete, self.move, self.grow, self.configure]
        self.random.choice(deeds)()

    def name(self) -> str:
        return self.random.choice(sorted(self.topics))

    def create(self) -> None:
        name = f"topic-{self.random.randrange(5)}"
        if name not in self.topics:
            self.topics[name] = self.bench.topic(name, partitions=self.random.randrange(1, 4))

    def delete(self) -> None:
        self.bench.delete(self.topics.pop(self.name()))

    def move(self) -> None:
        """Lead again, or lose the leader."""
        topic = self.topics[self.name()]
        known = self.bench.image.topics[topic].partitions[0]
        leader = self.random.choice((ME, -1))
        epoch = Epoch(known.leader_epoch + 1)
        view = led_here(leader=leader, leader_epoch=epoch, partition_epoch=epoch)
        self.bench.replay(PartitionChanged(topic, Partition(0), view))

    def grow(self) -> None:
        topic = self.topics[self.name()]
        count = len(self.bench.image.topics[topic].partitions)
        self.bench.replay(PartitionCreated(topic, Partition(count), led_here()))

    def configure(self) -> None:
        value = str(self.random.randrange(1, 1000))
        change = ConfigChanged(ResourceKind.TOPIC, self.name(), "retention.ms", value)
        self.bench.replay(change)

    def fence(self) -> None:
        broker = self.bench.image.brokers[ME]
        change = BrokerUnfenced if broker.fenced else BrokerFenced
        self.bench.replay(change(ME, broker.epoch))

    def load(self) -> None:
        """A new image out of a snapshot: the same facts in other objects."""
        old, new = self.bench.image, MetadataImage()
        new.load(old.offset, list(snapshot(old)))
        for field in ("topics", "names", "brokers", "brokers_version", "offset"):
            setattr(old, field, getattr(new, field))


@pytest.mark.parametrize("seed", range(12))
def test_an_answer_from_blocks_is_the_answer_made_anew(bench: HandlerBench, seed: int) -> None:
    random = Random(seed)
    life = Life(bench, random)
    for _ in range(60):
        life.step()
        version = random.choice((4, 8, 9, 12, 13))
        named = [MetadataRequestTopic(name=f"topic-{n}") for n in range(5)]
        request = MetadataRequest(
            topics=random.choice((None, named)),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=random.random() < 0.2,
        )
        check(bench, version, request)


def test_a_topic_is_encoded_once_until_it_changes(bench: HandlerBench) -> None:
    topic = bench.topic("t")
    request = MetadataRequest(topics=None)
    frame(bench, 12, request)
    (blocks,) = bench.broker.topic_blocks._forms.values()
    first = blocks[topic].encoded
    frame(bench, 12, request)
    assert blocks[topic].encoded is first
    bench.replay(BrokerFenced(ME, bench.image.brokers[ME].epoch))
    frame(bench, 12, request)
    assert blocks[topic].encoded is not first, "who is offline hangs on the brokers"
    view = PartitionView((ME,), (ME,), ME, Epoch(1), Epoch(1))
    bench.replay(PartitionChanged(topic, Partition(0), view))
    frame(bench, 12, request)
    assert blocks[topic].encoded != first


def test_another_history_of_the_same_length_is_another_topic(bench: HandlerBench) -> None:
    """A coordinator that lost its disk may say other things under the same offsets."""
    topic = bench.topic("t")
    request = MetadataRequest(topics=None)
    frame(bench, 12, request)
    known = bench.image.topics[topic]
    other = TopicView(known.name, known.id, partitions=known.partitions * 2, version=known.version)
    bench.image.topics[topic] = bench.image.names["t"] = other
    check(bench, 12, request)


def test_versions_that_look_alike_share_their_blocks_and_few_forms_are_kept(
    bench: HandlerBench,
) -> None:
    bench.topic("t")
    for version in (10, 11):
        frame(bench, version, MetadataRequest(topics=None))
    assert len(bench.broker.topic_blocks) == 1
    for version in API.versions:
        frame(bench, version, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
    assert len(bench.broker.topic_blocks) <= FORMS_MAX


def test_blocks_of_deleted_topics_are_forgotten(bench: HandlerBench) -> None:
    for number in range(300):
        topic = bench.topic(f"t{number}")
        frame(bench, 12, MetadataRequest(topics=None))
        bench.delete(topic)
    assert len(bench.broker.topic_blocks) < 150


def test_operations_are_told_where_they_are_asked(bench: HandlerBench) -> None:
    topic = bench.topic("t")
    asked = [
        MetadataRequestTopic(name="t", topic_id=ZERO_UUID),
        MetadataRequestTopic(name="no spaces", topic_id=ZERO_UUID),
    ]
    for version in (8, 10):
        for wanted, on_topic, on_cluster in (
            (False, NOT_ASKED, NOT_ASKED),
            (True, 3576, 8096),  # as Kafka's own, without authorizer
        ):
            request = MetadataRequest(
                topics=asked,
                include_topic_authorized_operations=wanted,
                include_cluster_authorized_operations=wanted,
            )
            answer = decode_response(API, version, memoryview(frame(bench, version, request)))[1]
            assert answer.cluster_authorized_operations == on_cluster
            assert [row.topic_authorized_operations for row in answer.topics] == [on_topic] * 2
    assert bench.image.topics[topic].name == "t"
