"""What the metadata log of a stopped cluster says of partitions that have no folder."""

from pathlib import Path

from tidelog.coordinator.runtime.snapshots import encode_batch
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset, Partition, Uuid
from tidelog.spark.noted_topics import noted_partitions
from tidelog.wire.metadata_records import (
    BrokerRegistered,
    MetadataRecord,
    PartitionCreated,
    PartitionView,
    SnapshotEnded,
    TopicCreated,
    TopicDeleted,
)

DIRECTORIES = tuple(Uuid(bytes([number]) * 16) for number in (11, 12))
HERE = frozenset(DIRECTORIES)
TOPICS = {"a": Uuid(b"a" * 16), "b": Uuid(b"b" * 16)}


def broker(number: int, *log_dirs: Uuid) -> BrokerRegistered:
    return BrokerRegistered(
        BrokerId(number), Incarnation(1), Offset(0), "h", 1, log_dirs=tuple(log_dirs)
    )


def topic(name: str, *replicas: int) -> list[MetadataRecord]:
    brokers = tuple(map(BrokerId, replicas))
    view = PartitionView(replicas=brokers, isr=brokers)
    return [TopicCreated(TOPICS[name], name), PartitionCreated(TOPICS[name], 0, view)]


def written(folder: Path, name: str, records: list[MetadataRecord], base: int = 0) -> None:
    log = folder / "coordinator" / "__cluster_metadata-0"
    log.mkdir(parents=True, exist_ok=True)
    (log / name).write_bytes(encode_batch(records, base=base, epoch=Epoch(0), now_ms=0))


def noted(folder: Path, here: frozenset[Uuid] = HERE) -> set[str]:
    found = noted_partitions([folder], here)
    assert {number for _, number in found} <= {Partition(0)}
    return {name for name, _ in found}


FIRST = f"{0:020d}.log"
BROKERS = [broker(0, DIRECTORIES[0]), broker(1, DIRECTORIES[1])]


def test_topics_are_noted_until_they_are_deleted(tmp_path: Path) -> None:
    written(tmp_path, FIRST, [*BROKERS, *topic("a", 0), *topic("b", 1)])
    assert noted(tmp_path) == {"a", "b"}
    gone: list[MetadataRecord] = [TopicDeleted(TOPICS["a"])]
    written(tmp_path, FIRST, [*BROKERS, *topic("a", 0), *topic("b", 1), *gone])
    assert noted(tmp_path) == {"b"}


def test_a_partition_that_may_lie_elsewhere_is_not_known_to_be_empty(tmp_path: Path) -> None:
    two = broker(1, *DIRECTORIES)
    written(tmp_path, FIRST, [BROKERS[0], two, *topic("a", 0), *topic("b", 0, 1)])
    assert noted(tmp_path, frozenset(DIRECTORIES[:1])) == {"a"}
    unregistered = topic("a", 7)
    written(tmp_path, FIRST, [*BROKERS, *unregistered])
    assert noted(tmp_path) == set()


def test_a_snapshot_stands_for_the_log_before_it(tmp_path: Path) -> None:
    whole: list[MetadataRecord] = [*BROKERS, *topic("a", 0)]
    written(tmp_path, f"{40:020d}-{0:010d}.checkpoint", [*whole, SnapshotEnded(len(whole))])
    written(tmp_path, f"{38:020d}.log", [TopicDeleted(TOPICS["b"]), *topic("b", 1)], base=38)
    assert noted(tmp_path) == {"a"}, "the log's records before the snapshot's end are in it"
    written(tmp_path, f"{41:020d}.log", topic("b", 1), base=41)
    assert noted(tmp_path) == {"a", "b"}
    (tmp_path / "coordinator" / "__cluster_metadata-0" / f"{38:020d}.log").unlink()
    assert noted(tmp_path) == set(), "the record between the snapshot and the log is not here"


def test_what_is_missing_or_broken_says_nothing(tmp_path: Path) -> None:
    assert noted(tmp_path) == set()
    whole: list[MetadataRecord] = [*BROKERS, *topic("a", 0)]
    written(tmp_path, f"{40:020d}-{0:010d}.checkpoint", whole)
    assert noted(tmp_path) == set(), "a snapshot without its end is none"
    written(tmp_path, f"{50:020d}.log", topic("b", 1), base=50)
    assert noted(tmp_path) == set(), "and the log does not begin at its beginning"
    path = tmp_path / "coordinator" / "__cluster_metadata-0" / FIRST
    written(tmp_path, FIRST, whole)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert noted(tmp_path) == set()
