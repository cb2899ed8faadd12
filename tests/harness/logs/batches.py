"""Batches and logs for tests of the log engine."""

from tidelog.kernel.files import Directory
from tidelog.kernel.ids import Incarnation, Partition, Uuid
from tidelog.kernel.instant import Instant
from tidelog.kernel.steps import at_once
from tidelog.node.log.contracts import Appended, LogName, NoKeeper
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.lookup import Search, TimestampOffset, look_for
from tidelog.node.log.ownership import Owner
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of, validate_produced
from tidelog.wire.records import Origin, Record, build_batch, iterate_batches

NOW = Instant(0)
NOW_MS = 1_700_000_000_000
TOPIC_ID = Uuid(bytes(range(16)))
CLUSTER_ID = "tide-cluster-000000000"


def batch(
    count: int = 1,
    *,
    size: int = 10,
    timestamp: int = NOW_MS,
    producer: tuple[int, int, int] | None = None,
    keys: bool = False,
) -> memoryview:
    """As a producer sends it; `producer` is (id, epoch, first sequence)."""
    records = [
        Record(at, timestamp + at, f"k{at}".encode() if keys else None, bytes(size), ())
        for at in range(count)
    ]
    origin = Origin() if producer is None else Origin(*producer)
    return memoryview(build_batch(records, origin=origin))


def produce(log: Log, view: memoryview, *, epoch: int = 0, now_ms: int = NOW_MS) -> Appended:
    """What a broker does with a produced batch."""
    header = validate_produced(view, rules_of(log.settings), now_ms)
    return log.append_as_leader(NOW, now_ms, view, header, epoch)


def new_log(directory: Directory, settings: LogSettings | None = None) -> Log:
    """A log that stands alone."""
    name = LogName("t", Partition(0), TOPIC_ID)
    return Log(directory.directory("t-0"), name, settings or LogSettings(), NoKeeper())


def owner(
    *,
    cluster_id: str = CLUSTER_ID,
    node_id: int = 0,
    boot_id: str = "boot-1",
    disk_generation: int = 0,
    incarnation: int = 1,
) -> Owner:
    return Owner(
        cluster_id=cluster_id,
        node_id=node_id,
        boot_id=boot_id,
        disk_generation=disk_generation,
        incarnation=Incarnation(incarnation),
        directory_id=Uuid(b"directory-id-016"),
    )


def open_logs(
    directory: Directory,
    *,
    settings: LogSettings | None = None,
    boot_id: str = "boot-1",
    now_ms: int = NOW_MS,
) -> LogDirectory:
    """A log directory as a starting broker opens it."""
    logs = LogDirectory(directory, owner(boot_id=boot_id))
    kept = settings or LogSettings()
    logs.open(lambda _: kept, now_ms)
    return logs


def flush(log: Log) -> None:
    """What the shell does in a thread, here at once."""
    upto = log.end
    for file in log.dirty_files(upto):
        file.sync()
    log.flushed(upto)


def values_of(log: Log) -> list[int]:
    """Every offset a reader gets, from the start on."""
    offsets: list[int] = []
    at = log.start
    while (piece := log.read(at, 1 << 30, log.end, min_one=True)) is not None:
        content = piece.file.read(piece.position, piece.size)
        for header, _ in iterate_batches(content):
            offsets += range(max(header.base_offset, log.start), header.next_offset)
        at = offsets[-1] + 1
    return offsets


def by_time(log: Log, timestamp: int, limit: int) -> TimestampOffset | None:
    """The first record of that time or later below `limit`."""
    return result_of(log.offset_for_timestamp(timestamp, limit))


def of_largest_time(log: Log, limit: int) -> TimestampOffset | None:
    """The first record with the largest timestamp below `limit`."""
    return result_of(log.offset_of_max_timestamp(limit))


def result_of(search: Search) -> TimestampOffset | None:
    """Drive a search to its end, as nobody else has to be served."""
    found: TimestampOffset | None = None
    while True:
        try:
            wanted = search.send(found)
        except StopIteration as end:
            result: TimestampOffset | None = end.value
            return result
        found = None if wanted is None else at_once(look_for(wanted))
