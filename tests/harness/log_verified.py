"""`tidelog log verify` on a directory of a test, and directories to be damaged."""

from pathlib import Path
from random import Random
from typing import NamedTuple

from harness.log_batches import CLUSTER_ID, NOW_MS, TOPIC_ID, flush, open_logs, produce
from harness.log_transactions import Writer
from harness.memory_disk import MemoryDisk
from harness.platter import Node
from tidelog.kernel.files import Directory
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.read_only import ReadOnlyDirectory
from tidelog.tools.log_files.verify_directory import Around, TopicFacts, verify_directory
from tidelog.tools.log_files.verify_log import Life
from tidelog.wire.records import Origin, Record, build_batch

SETTINGS = LogSettings(segment_bytes=40_000)
DIRECTORY_ID = b"directory-id-016"


def around(*, boot_id: str = "boot-1", in_use: bool = False, interval: int = 4096) -> Around:
    """What a cluster knows of the directories that `open_logs` makes."""
    facts = TopicFacts(topic_id=TOPIC_ID, compacted=False, index_interval=interval)
    return Around(
        boot_id=boot_id,
        in_use=in_use,
        cluster_id=CLUSTER_ID,
        node_id=0,
        directory_ids=(DIRECTORY_ID,),
        topics={"t": facts, "u": facts},
    )


def verified(directory: Directory, outside: Around) -> Report:
    report = Report()
    verify_directory(directory, outside, report)
    return report


def random_batch(
    rng: Random, *, timestamp: int, producer: tuple[int, int, int] | None = None
) -> memoryview:
    """Of bytes that no damage leaves as they are by chance."""
    count = rng.randint(1, 5)
    records = [
        Record(at, timestamp + at, rng.randbytes(8), rng.randbytes(rng.randint(0, 600)))
        for at in range(count)
    ]
    origin = Origin() if producer is None else Origin(*producer)
    return memoryview(build_batch(records, origin=origin))


def lived(seed: int, *, closed: bool = True) -> MemoryDisk:
    """A directory of two logs after a kill, a cut, several epochs; and a clean stop, unless not."""
    rng = Random(seed)
    disk = MemoryDisk()
    logs = open_logs(disk.directory(), settings=SETTINGS)
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    _write(log, rng, epoch=0, producer=1)
    flush(log)
    log.truncate_to(log.end - 9)
    _write(log, rng, epoch=3, producer=2)
    log.advance_start(log.end // 3)
    checkpoint = logs.checkpoint({})
    checkpoint.write()
    logs.checkpointed(checkpoint)
    disk.kill()
    logs = open_logs(disk.directory(), settings=SETTINGS)
    log = logs.create("t", 0, TOPIC_ID, SETTINGS)
    _write(log, rng, epoch=5, producer=3)
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
        _write(log, rng, epoch=6, producer=4)
    return disk


def _write(log: Log, rng: Random, *, epoch: int, producer: int) -> None:
    """Plain batches, those of a producer, and the transactions of another."""
    sequence = 0
    writer = Writer(producer + 10)
    for at in range(80):
        idempotent = rng.random() < 0.5
        origin = (producer, 0, sequence) if idempotent else None
        view = random_batch(rng, timestamp=NOW_MS + at * 10, producer=origin)
        end = log.end
        produce(log, view, epoch=epoch)
        if idempotent:
            sequence += log.end - end
        if at % 7 < 3:
            writer.write(log, size=rng.randint(0, 300), epoch=epoch)
        elif at % 7 == 3:
            writer.end(log, committed=at % 2 == 0, coordinator=epoch, epoch=epoch)


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

    def verified(self) -> Report:
        outside = around(in_use=self.life is Life.OPEN)
        return verified(ReadOnlyDirectory(str(self.path)), outside)


def home_in(folder: Path, seed: int, life: Life) -> Home:
    """Made if it is not there."""
    path = folder / f"{seed}-{life.name}"
    if not path.exists():
        (top,) = lived(seed, closed=life is Life.CLOSED).root.names.values()
        assert isinstance(top, Node)
        write_files(top, path)
    return Home(path, life)
