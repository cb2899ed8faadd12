"""The log directories of a simulated broker, kept as its shell keeps them, but in no thread."""

import errno
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from harness.controllers import CLUSTER
from harness.log_batches import NOW_MS, flush
from harness.memory_disk import MemoryDisk
from tidelog.kernel.ids import BrokerId, Incarnation, TopicPartition, Uuid
from tidelog.node.log.directories import LogDirectories
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.ownership import Owner
from tidelog.node.log.settings import LogSettings


class SimulatedStorage:
    """Of one life of a broker."""

    def __init__(
        self,
        disk: MemoryDisk,
        me: BrokerId,
        incarnation: Incarnation,
        *,
        disk_generation: int,
        directories: int,
        on_lost: Callable[[list[TopicPartition]], None],
    ) -> None:
        self._on_lost = on_lost

        def directory(number: int) -> LogDirectory:
            made = b"log%02d-%02d-%d" % (me, number, incarnation)
            owner = Owner(
                cluster_id=CLUSTER,
                node_id=me,
                boot_id="boot-1",
                disk_generation=disk_generation,
                incarnation=incarnation,
                directory_id=Uuid(made.ljust(16, b".")),
            )
            return LogDirectory(disk.directory(f"log{number}"), owner)

        self.logs = LogDirectories([directory(number) for number in range(directories)])

    def open(self, defaults: LogSettings) -> None:
        self.logs.open(lambda _: defaults, NOW_MS)

    def without(self, keys: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those that may have been here once, and this life knows that it has not got."""
        logs = self.logs
        lacking = {key for key in keys if logs.may_lack and logs.directory_of(key) is None}
        return lacking | logs.offline.keys()

    def flush(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Everything is on stable storage, as after a round of the flusher."""
        for one in self.logs.working:
            try:
                for log in one:
                    flush(log)
            except OSError as failure:
                self.logs.fail(one, failure)
        self.checkpoint(high_watermarks)
        self.sync()

    def sync(self) -> None:
        for one in self.logs.working:
            try:
                one.sync()
            except OSError as failure:
                self.logs.fail(one, failure)
        self.look()

    def checkpoint(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for one in self.logs.working:
            checkpoint = one.checkpoint(high_watermarks)
            try:
                checkpoint.write()
                one.checkpointed(checkpoint)
            except OSError as failure:
                self.logs.fail(one, failure)
        self.look()

    def close_clean(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for one in self.logs.working:
            try:
                one.close_clean(high_watermarks)
            except OSError as failure:
                one.fail(failure)

    def doubted(self, key: TopicPartition, failure: Exception) -> Callable[[], None] | None:
        """What to do when the shell has looked at the directory, if it is at its end."""
        directory = self.logs.directory_of(key)
        if directory is None or not isinstance(failure, OSError) or failure.errno != errno.EIO:
            return None
        return partial(self._give_up, directory, failure)

    def _give_up(self, directory: LogDirectory, failure: OSError) -> None:
        self.logs.fail(directory, failure)
        self.look()

    def heard(self, *, of_all: bool) -> None:
        self.logs.heard(of_all=of_all)
        self.look()

    def look(self) -> None:
        """See to directories that failed."""
        while failed := self.logs.take_failed():
            for directory in failed:
                self._on_lost(directory.keys())
            self.logs.write_marks()
