"""Crash images of one recorded run: the real log engine on a real folder, opened again and again.

While it runs, moments are kept: the folder's files, what the ledger says of them, and what was
promised until then. Any number of images can be drawn from a moment, made of a copy, and opened by
the log engine as after a power loss.
"""

import shutil
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from msgspec.structs import replace

from harness.disks.recorded_disk import RecordedDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, open_logs, produce, values_of
from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.launch import undo_directory
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.marks import LastStop
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime.disk import open_disk
from tidelog.tools.chaos.power_loss import draw_image, make_image
from tidelog.tools.chaos.records_lost import windows
from tidelog.tools.chaos.survey import SeenDirectory, SeenFile, Survey

SAID = "said"
"""A file beside the logs that is replaced with every flush, as checkpoints are."""
SETTINGS = LogSettings(segment_bytes=16_000, index_interval_bytes=600)
PARTITIONS = 2
NEVER = 1 << 60

POLICIES = {"os": NEVER, "messages": 7, "commit": 1}
"""After how many batches a log is flushed."""


@dataclass(frozen=True, slots=True)
class Promised:
    """Of one log."""

    start: int
    end: int
    flushed: int
    """All below was forced out, and its writer was told so."""


@dataclass(frozen=True, slots=True)
class Moment:
    """From which a machine may lose power."""

    folder: Path
    """A copy of all files."""
    survey: Survey
    """Of the files in that copy."""
    logs: dict[int, Promised]
    said: bytes
    """What a small file held when its writer was told that it is on stable storage."""


@dataclass(slots=True)
class Recording:
    """One run under one policy."""

    folder: Path
    every: int
    """Batches between two flushes."""
    rng: Random
    flushed: dict[int, int] = field(default_factory=dict)
    _said: bytes = b""

    def moments(self, steps: int, each: int) -> Generator[Moment, None, None]:
        """One after every so many steps."""
        with RecordedDisk(self.folder / "live") as disk:
            logs = open_logs(disk.directory, settings=SETTINGS)
            for number in range(PARTITIONS):
                logs.create("t", number, TOPIC_ID, SETTINGS)
            try:
                self._checkpoint(logs)
                for step in range(1, steps + 1):
                    self._step(logs, step)
                    self._say(disk)
                    if step % each == 0:
                        yield self._keep(disk, logs, step)
            finally:
                for log in logs:
                    log.abandon()

    def _step(self, logs: LogDirectory, step: int) -> None:
        number = step % PARTITIONS
        log = logs.log("t", number)
        assert log is not None
        size = self.rng.choice([10, 400, 6000])
        produce(log, batch(2, size=size, timestamp=NOW_MS + step))
        if step // PARTITIONS % self.every == 0:
            self._flush(number, log)
        what = self.rng.randrange(40)
        if what < 2:
            self._checkpoint(logs)
        elif what == 2:
            for rolled in logs.take_rolled():
                self._flush(rolled.name.partition, rolled, rolled.sealed_end)
        elif what == 3:
            log.advance_start(log.start + (log.end - log.start) // 2)
            self._checkpoint(logs)
            logs.purge(NOW_MS + step)
        elif what == 4:
            log.truncate_to(max(log.end - 6, log.start))
            self.flushed[number] = min(self.flushed.get(number, 0), log.end)

    def _say(self, disk: RecordedDisk) -> None:
        """Durably, and last, so that no later sync brings it along."""
        said = b"%d" % sum(self.flushed.values())
        if said != self._said:
            disk.directory.replace(SAID, said)
            self._said = said

    def _flush(self, number: int, log: Log, upto: int | None = None) -> None:
        end = log.end if upto is None else upto
        for file in log.dirty_files(end):
            file.sync()
        log.flushed(end)
        self.flushed[number] = max(self.flushed.get(number, 0), end)

    def _checkpoint(self, logs: LogDirectory) -> None:
        written = logs.checkpoint({})
        written.write()
        logs.checkpointed(written)

    def _keep(self, disk: RecordedDisk, logs: LogDirectory, step: int) -> Moment:
        found = disk.survey()
        copy = self.folder / str(step)
        for source in (disk.top, undo_directory(disk.top)):
            if Path(source).exists():
                shutil.copytree(source, copy / Path(source).name)
        promised = dict[int, Promised]()
        for log in logs:
            number = log.name.partition
            promised[number] = Promised(log.start, log.end, self.flushed.get(number, 0))
        moved = elsewhere(found, str(Path(disk.top).parent), str(copy))
        return Moment(copy, moved, promised, self._said)


def elsewhere(found: Survey, old: str, new: str) -> Survey:
    """The same of a copy."""

    def moved(path: str) -> str:
        return path.replace(old, new, 1)

    def moved_file(file: SeenFile) -> SeenFile:
        undo = None if file.undo is None else moved(file.undo)
        return replace(file, path=moved(file.path), undo=undo)

    directories = {
        inode: SeenDirectory(moved(seen.path), seen.now, seen.durable)
        for inode, seen in found.directories.items()
    }
    files = {inode: moved_file(file) for inode, file in found.files.items()}
    return Survey(tuple(map(moved, found.tops)), directories, files, found.is_full)


def faults_of(moment: Moment, seed: int, folder: Path) -> list[str]:
    """What an image of that moment lacks, though it was promised."""
    shutil.copytree(moment.folder, folder)
    found = elsewhere(moment.survey, str(moment.folder), str(folder))
    image = draw_image(found, seed)
    told = {number: promised.end for number, promised in moment.logs.items()}
    told.update((int(row.place[1]), row.left) for row in windows(found, image))
    make_image(found, image)
    return broken_promises(moment, folder, power=True, told=told)


def faults_of_a_kill(moment: Moment, folder: Path) -> list[str]:
    shutil.copytree(moment.folder, folder)
    return broken_promises(moment, folder, power=False)


def broken_promises(
    moment: Moment, folder: Path, *, power: bool, told: Mapping[int, int] | None = None
) -> list[str]:
    """`told`: where the logs were said to end."""
    boot = "boot-2" if power else "boot-1"
    disk = open_disk(str(folder / "log0"))
    said = disk.read_all(SAID) or b""
    try:
        logs = open_logs(disk, settings=SETTINGS, boot_id=boot)
    except CannotStartError as error:
        return [str(error)]
    complaints = []
    if power and logs.last_stop is not LastStop.POWER_LOSS:
        complaints.append(f"it does not know that power was lost: {logs.last_stop}")
    if said != moment.said:
        complaints.append(f"it said {said.decode()}, and last {moment.said.decode()}")
    complaints += _broken_by(logs, moment, power=power)
    complaints += _mistold(logs, told or {})
    for log in logs:
        log.abandon()  # hundreds of images would hold thousands of descriptors
    return complaints


def _mistold(logs: LogDirectory, told: Mapping[int, int]) -> Iterator[str]:
    for number, end in told.items():
        log = None if logs.offline else logs.log("t", number)
        if log is not None and log.end != max(log.start, end):
            yield f"log {number} ends at {log.end}, {end} was told"


def _broken_by(logs: LogDirectory, moment: Moment, *, power: bool) -> Iterator[str]:
    for key, reason in logs.offline.items():
        yield f"{key} is offline: {reason}"
    for number, promised in moment.logs.items():
        log = None if logs.offline else logs.log("t", number)
        kept = promised.flushed if power else promised.end
        for fault in _of_log(log, promised, kept):
            yield f"log {number} {fault}"


def _of_log(log: Log | None, promised: Promised, kept: int) -> Iterator[str]:
    if log is None:
        if kept > promised.start:
            yield f"is gone, up to {kept} was promised"
        return
    if log.end < kept and kept > promised.start:
        yield f"ends at {log.end}, up to {kept} was promised"
    if log.end > promised.end and log.start < log.end:
        yield f"ends at {log.end}, behind {promised.end}"
    if log.start > promised.start:
        yield f"starts at {log.start}, from {promised.start} on all was there"
    if values_of(log) != list(range(log.start, log.end)):
        yield "has a hole"
