"""`tidelog log verify` on a directory of a test, and directories to be damaged."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from msgspec import structs

from harness.disks.memory_disk import MemoryDisk
from harness.disks.platter import Node
from harness.logs.batches import CLUSTER_ID, NOW_MS, TOPIC_ID, flush, open_logs, produce
from harness.logs.compaction import compact
from harness.logs.transactions import Writer
from tidelog.kernel.files import Directory
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.read_only import ReadOnlyDirectory
from tidelog.tools.log_files.verify_directory import Around, TopicFacts, verify_directory
from tidelog.tools.log_files.verify_log import Life
from tidelog.wire.records import Origin, Record, build_batch

SETTINGS = LogSettings(segment_bytes=40_000)
COMPACTING = LogSettings(
    segment_bytes=20_000, compact=True, delete=False, delete_retention_ms=0, file_delete_delay_ms=0
)
DIRECTORY_ID = b"directory-id-016"


def around(
    *,
    boot_id: str = "boot-1",
    in_use: bool = False,
    interval: int = 4096,
    compacted: bool = False,
) -> Around:
    """What a cluster knows of the directories that `open_logs` makes."""
    facts = TopicFacts(topic_id=TOPIC_ID, compacted=compacted, index_interval=interval)
    return Around(
        boot_id=boot_id,
        in_use=in_use,
        cluster_id=CLUSTER_ID,
        node_id=0,
        directory_ids=(DIRECTORY_ID,),
        topics={"t": facts, "u": structs.replace(facts, compacted=False)},
    )


def verified(directory: Directory, outside: Around) -> Report:
    report = Report()
    verify_directory(directory, outside, report)
    return report


def random_batch(
    rng: Random,
    *,
    timestamp: int,
    producer: tuple[int, int, int] | None = None,
    keys: Sequence[bytes] = (),
) -> memoryview:
    """Of bytes that no damage leaves as they are by chance; of any keys, where none are given."""
    count = rng.randint(1, 5)

    def key() -> bytes:
        return rng.choice(keys) if keys else rng.randbytes(8)

    records = [
        Record(at, timestamp + at, key(), rng.randbytes(rng.randint(0, 600))) for at in range(count)
    ]
    origin = Origin() if producer is None else Origin(*producer)
    return memoryview(build_batch(records, origin=origin))


def lived(seed: int, *, closed: bool = True, compacted: bool = False) -> MemoryDisk:
    """A directory of two logs after a kill, a cut, several epochs; and a clean stop, unless not.
    The first of them is compacted, if that is asked."""
    rng = Random(seed)
    disk = MemoryDisk()
    settings = COMPACTING if compacted else SETTINGS
    keys = [b"key-%d" % number for number in range(60)] if compacted else []
    logs = open_logs(disk.directory(), settings=SETTINGS)
    log = logs.create("t", 0, TOPIC_ID, settings)
    _write(log, rng, epoch=0, producer=1, keys=keys)
    flush(log)
    if not compacted:
        log.truncate_to(log.end - 9)
    _write(log, rng, epoch=3, producer=2, keys=keys)
    if compacted:
        _compact(logs, log)
    else:
        log.advance_start(log.end // 3)
    checkpoint = logs.checkpoint({})
    checkpoint.write()
    logs.checkpointed(checkpoint)
    disk.kill()
    logs = open_logs(disk.directory(), settings=SETTINGS)
    log = logs.create("t", 0, TOPIC_ID, settings)
    log.settings = settings
    _write(log, rng, epoch=5, producer=3, keys=keys)
    if compacted:
        _compact(logs, log)
        _write(log, rng, epoch=5, producer=5, keys=keys)
    other = logs.create("u", 1, TOPIC_ID, SETTINGS)
    produce(other, random_batch(rng, timestamp=NOW_MS))
    ends = {log.name.key: log.end, other.name.key: other.end}
    if closed:
        logs.close_clean(ends)
    else:
        flush(log)
        checkpoint = logs.checkpoint(ends)
        checkpoint.write()
        logs.checkpointed(checkpoint)
        _write(log, rng, epoch=6, producer=4, keys=keys)
    return disk


def _compact(logs: LogDirectory, log: Log) -> None:
    """One pass over all that may be compacted: most values are overwritten, some were aborted."""
    flush(log)
    before = log.size_bytes
    assert compact(logs, log) is not None
    log.purge(NOW_MS + log.settings.file_delete_delay_ms)
    assert log.size_bytes < before


def _write(log: Log, rng: Random, *, epoch: int, producer: int, keys: Sequence[bytes]) -> None:
    """Plain batches, those of a producer, and the transactions of another."""
    sequence = 0
    writer = Writer(producer + 10)
    for at in range(80):
        idempotent = rng.random() < 0.5
        origin = (producer, 0, sequence) if idempotent else None
        view = random_batch(rng, timestamp=NOW_MS + at * 10, producer=origin, keys=keys)
        end = log.end
        produce(log, view, epoch=epoch)
        if idempotent:
            sequence += log.end - end
        if at % 7 < 3:
            writer.write(log, size=rng.randint(0, 300), epoch=epoch)
        elif at % 7 == 3:
            writer.end(log, committed=at % 2 == 0, coordinator=epoch, epoch=epoch)
    if keys:  # nothing is compacted above an open transaction
        writer.end(log, committed=False, coordinator=epoch, epoch=epoch)


def write_files(node: Node, folder: Path) -> None:
    """What is on the disk, on a real one."""
    folder.mkdir()
    for name, entry in node.names.items():
        if isinstance(entry, Node):
            write_files(entry, folder / name)
        else:
            (folder / name).write_bytes(entry.content)


def files_of(node: Node, prefix: str = "") -> dict[str, bytearray]:
    """Every file with bytes in it, by its path."""
    found: dict[str, bytearray] = {}
    for name, entry in node.names.items():
        if isinstance(entry, Node):
            found |= files_of(entry, f"{prefix}{name}/")
        elif entry.content:
            found[f"{prefix}{name}"] = entry.content
    return found


class Home(NamedTuple):
    """A log directory on a real disk, and how it was left."""

    path: Path
    life: Life
    compacted: bool = False

    def verified(self) -> Report:
        boot = "boot-2" if self.life is Life.POWER_LOST else "boot-1"
        in_use = self.life is Life.OPEN
        outside = around(boot_id=boot, in_use=in_use, compacted=self.compacted)
        return verified(ReadOnlyDirectory(str(self.path)), outside)


def home_in(folder: Path, seed: int, life: Life, *, compacted: bool = False) -> Home:
    """Made if it is not there. After a power loss all is there that might have been lost."""
    path = folder / f"{seed}-{life.name}-{compacted}"
    if not path.exists():
        disk = lived(seed, closed=life is Life.CLOSED, compacted=compacted)
        (top,) = disk.root.names.values()
        assert isinstance(top, Node)
        write_files(top, path)
    return Home(path, life, compacted)
