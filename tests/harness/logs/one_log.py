"""A broker's one log on a disk in memory, to be stopped, damaged and started again."""

from collections.abc import Mapping

from harness.disks.memory_disk import MemoryDirectory, MemoryDisk
from harness.logs.batches import NOW_MS, TOPIC_ID, batch, flush, open_logs, produce
from tidelog.kernel.ids import TopicPartition
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings

SIZE = len(batch(2, size=100))
SETTINGS = LogSettings(segment_bytes=5 * SIZE, index_interval_bytes=SIZE)
FIRST = f"{0:020d}.log"
SECOND = f"{10:020d}.log"
LAST = f"{20:020d}.log"


class Broker:
    """One disk and the logs a broker has open on it."""

    def __init__(self, batches: int = 12, *, flushed: int = 0) -> None:
        """Two records a batch, five batches a segment; the first `flushed` batches are durable."""
        self.disk = MemoryDisk()
        self.boot = 1
        self.logs = self.open()
        log = self.logs.create("t", 0, TOPIC_ID, SETTINGS)
        for at in range(batches):
            produce(log, batch(2, size=100, timestamp=NOW_MS + at, producer=(7, 0, at * 2)))
            if at + 1 == flushed:
                flush(log)
                self.checkpoint()

    @property
    def place(self) -> MemoryDirectory:
        return self.disk.directory().directory("t-0")

    def open(self) -> LogDirectory:
        return open_logs(self.disk.directory(), settings=SETTINGS, boot_id=f"boot-{self.boot}")

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        checkpoint = self.logs.checkpoint(dict(high_watermarks or {}))
        checkpoint.write()
        self.logs.checkpointed(checkpoint)
        self.disk.directory().sync()

    def kill(self) -> None:
        self.disk.kill()

    def lose_power(self) -> None:
        """As far as the files go nothing is lost: the test damages them itself."""
        self.disk.kill()
        self.boot += 1

    def restart(self) -> Log:
        self.logs = self.open()
        log = self.logs.log("t", 0)
        assert log is not None
        return log


def robbed() -> tuple[Broker, Log]:
    """It was flushed nowhere; the first of three segments is gone, as far as the disk goes."""
    broker = Broker(12)
    broker.lose_power()
    for name in broker.place.names():
        if name.startswith(FIRST.removesuffix(".log")):
            broker.place.unlink(name)
    return broker, broker.restart()
