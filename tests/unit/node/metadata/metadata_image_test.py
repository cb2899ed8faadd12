"""The image: what records make of it, what it notes, and how it travels as a snapshot."""

import pytest

from harness.machines.controllers import (
    CLUSTER,
    ONE,
    TWO,
    Controlled,
    replayed,
    through_snapshot,
    topic,
)
from tidelog.coordinator.controller.requests import RegisterTransactions
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset, ProducerId, Uuid
from tidelog.node.metadata.difference import difference
from tidelog.node.metadata.image import MetadataImage, snapshot
from tidelog.wire import metadata_records as records
from tidelog.wire.metadata_records import (
    BrokerFenced,
    ConfigChanged,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
    ProducerIdsAllocated,
    ResourceKind,
    TopicCreated,
    TopicDeleted,
    TransactionsActivated,
)

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
VIEW = PartitionView(replicas=(ONE,), isr=(ONE,), leader=ONE)


def image_of(*log: records.MetadataRecord, noting: bool = False) -> MetadataImage:
    image = MetadataImage(noting=noting)
    for record in log:
        image.replay(record)
    return image


def test_an_image_counts_the_records_it_has_seen() -> None:
    assert image_of().offset == -1
    assert image_of(TopicCreated(A, "a"), PartitionCreated(A, 0, VIEW)).offset == 1


def test_a_topic_is_found_by_name_and_by_id_until_it_is_deleted() -> None:
    image = image_of(TopicCreated(A, "a"), PartitionCreated(A, 0, VIEW))
    assert image.names["a"] is image.topics[A]
    assert image.partition(A, 0) == VIEW
    assert image.partition(A, 1) is None
    assert image.partition(B, 0) is None
    image.replay(TopicDeleted(A))
    assert (image.names, image.topics, image.partitions_count) == ({}, {}, 0)


def test_a_topic_s_version_moves_with_everything_that_touches_it_and_nothing_else() -> None:
    image = image_of(TopicCreated(A, "a"), PartitionCreated(A, 0, VIEW))
    versions = [image.topics[A].version]
    for record in (
        ConfigChanged(ResourceKind.TOPIC, "a", "k", "v"),
        PartitionChanged(A, 0, PartitionView((ONE,), (ONE,), ONE, Epoch(1), Epoch(1))),
        TopicCreated(B, "b"),
    ):
        image.replay(record)
        versions.append(image.topics[A].version)
    assert versions == [1, 2, 3, 3]


def test_a_setting_without_a_value_is_taken_away() -> None:
    image = image_of(
        TopicCreated(A, "a"),
        ConfigChanged(ResourceKind.TOPIC, "a", "k", "v"),
        ConfigChanged(ResourceKind.BROKER, "1", "k", "v"),
    )
    assert image.topics[A].configs == {"k": "v"}
    assert image.broker_configs == {"1": {"k": "v"}}
    image.replay(ConfigChanged(ResourceKind.TOPIC, "a", "k", None))
    image.replay(ConfigChanged(ResourceKind.BROKER, "1", "k", None))
    assert image.topics[A].configs == {}
    assert image.broker_configs == {}


@pytest.mark.parametrize("kind", [ResourceKind.GROUP, ResourceKind.CLIENT_METRICS])
def test_what_is_no_topic_and_no_broker_has_settings_too(kind: ResourceKind) -> None:
    image = image_of(ConfigChanged(kind, "a", "k", "v"), ConfigChanged(kind, "b", "k", "v"))
    assert image.configs_of(kind) == {"a": {"k": "v"}, "b": {"k": "v"}}
    copy = MetadataImage()
    copy.load(image.offset, list(snapshot(image)))
    assert copy == image
    image.replay(ConfigChanged(kind, "a", "k", None))
    assert image.configs_of(kind) == {"b": {"k": "v"}}
    assert difference(copy, image).configs == [(kind, "a")]


@pytest.mark.parametrize(
    "record",
    [
        TopicCreated(A, "other"),
        TopicCreated(B, "a"),
        TopicDeleted(B),
        PartitionCreated(A, 2, VIEW),
        PartitionCreated(A, 1, PartitionView((ONE,), (), ONE)),
        PartitionChanged(A, 0, PartitionView((ONE,), (ONE,), ONE, Epoch(-1), Epoch(1))),
        PartitionChanged(A, 0, VIEW),
        PartitionChanged(A, 1, VIEW),
        BrokerFenced(TWO, Offset(0)),
        ProducerIdsAllocated(ONE, ProducerId(0)),
        TransactionsActivated(Epoch(0), Incarnation(1)),
        TransactionsActivated(Epoch(1), Incarnation(0)),
    ],
    ids=str,
)
def test_a_record_that_contradicts_the_image_is_noticed(record: records.MetadataRecord) -> None:
    image = image_of(TopicCreated(A, "a"), PartitionCreated(A, 0, VIEW))
    with pytest.raises((AssertionError, LookupError)):
        image.replay(record)


def test_changes_name_what_happened_once() -> None:
    image = image_of(TopicCreated(A, "a"), PartitionCreated(A, 0, VIEW), noting=True)
    image.take_changes()
    image.replay(TopicCreated(B, "b"))
    image.replay(PartitionCreated(B, 0, VIEW))
    later = PartitionView((ONE,), (ONE,), ONE, Epoch(1), Epoch(1))
    image.replay(PartitionChanged(B, 0, later))
    image.replay(ConfigChanged(ResourceKind.TOPIC, "b", "k", "v"))
    image.replay(TopicDeleted(A))
    changes = image.take_changes()
    assert [one.name for one in changes.created] == ["b"]
    assert [one.name for one in changes.deleted] == ["a"]
    assert [(one.name, partition) for one, partition in changes.partitions] == [("b", 0)]
    assert changes.configs == [(ResourceKind.TOPIC, "b")]
    nothing = image.take_changes()
    assert (nothing.created, nothing.deleted, nothing.partitions) == ([], [], [])


def test_a_topic_made_and_deleted_between_two_looks_has_no_partitions_to_act_on() -> None:
    image = image_of(
        TopicCreated(A, "a"), PartitionCreated(A, 0, VIEW), TopicDeleted(A), noting=True
    )
    changes = image.take_changes()
    assert changes.partitions == []
    assert [one.name for one in changes.deleted] == ["a"]


def busy() -> Controlled:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic("a", 3, configs={"segment.bytes": "4096"}), topic("b", 2))
    controlled.lose(TWO)
    controlled.delete("b")
    controlled.ask(RegisterTransactions(CLUSTER, Incarnation(7)))
    return controlled


def test_a_snapshot_makes_the_same_image() -> None:
    image = busy().image
    assert through_snapshot(image) == image


def test_a_log_makes_the_same_image_each_time() -> None:
    controlled = busy()
    assert replayed(controlled.log) == controlled.image


def test_the_way_from_one_image_to_another_is_what_the_records_between_them_changed() -> None:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic("a", 3), topic("b", 2))
    before = replayed(controlled.log)
    controlled.delete("b")
    controlled.create(topic("c", 1, configs={"segment.bytes": "4096"}))
    controlled.lose(ONE)
    changes = difference(before, through_snapshot(controlled.image))
    assert [one.name for one in changes.created] == ["c"]
    assert [one.name for one in changes.deleted] == ["b"]
    assert changes.brokers == [BrokerId(1)]
    assert changes.configs == [(ResourceKind.TOPIC, "c")]
    touched = {
        (one.name, partition)
        for one in controlled.image.topics.values()
        for partition, view in enumerate(one.partitions)
        if before.partition(one.id, partition) != view
    }
    assert {(one.name, partition) for one, partition in changes.partitions} == touched


def test_every_record_survives_its_bytes() -> None:
    for record in busy().log:
        assert records.decode(records.encode(record), place="", position=0) == record


@pytest.mark.parametrize("value", [b"", b"\x91\x63", b"\xc0", b"\x93\x07\xc4\x01a\xa1b", b"\xff"])
def test_bytes_that_are_no_record_are_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptError, match="no record"):
        records.decode(value[:2], place="log", position=7)


def test_a_field_that_a_later_program_adds_is_left_out() -> None:
    later = records.encode(TopicDeleted(A))
    longer = bytes([later[0] + 1]) + later[1:] + b"\xa5added"
    assert records.decode(longer, place="", position=0) == TopicDeleted(A)
