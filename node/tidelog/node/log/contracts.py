"""What goes in and out of a log, and what it asks of the directory that holds it."""

from typing import NamedTuple, Protocol

from tidelog.kernel.files import File
from tidelog.kernel.ids import Partition, TopicPartition, Uuid


class LogName(NamedTuple):
    """Whose log it is."""

    topic: str
    partition: Partition
    topic_id: Uuid

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def directory(self) -> str:
        return f"{self.topic}-{self.partition}"


class Appended(NamedTuple):
    """Where a batch went."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """-1 unless the topic stamps the broker's time."""
    log_start: int
    duplicate: bool = False
    """It was in the log already; these are its offsets of then."""


class FileSlice:
    """Batches as they lie in a file; the shell sends them without reading them."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        assert size > 0
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileSlice({self.file.name!r}, {self.position}, {self.size})"


class LogKeeper(Protocol):
    """Who keeps what is written once for all logs of a directory."""

    def files_wanted(self, name: LogName) -> None:
        """A log is about to make its first files."""

    def checkpoint_first(self) -> None:
        """A recovery point or start went back: that must be on disk before the files follow."""

    def rolled(self, name: LogName) -> None:
        """A segment was sealed: a flush in the background should follow."""

    def touched(self, name: LogName) -> None:
        """Its start, end or recovery point moved, or it has files now."""


class NoKeeper:
    """For a log that stands alone: whoever owns it keeps its recovery point, or scans it all."""

    def files_wanted(self, name: LogName) -> None:
        """Nothing to prepare."""

    def checkpoint_first(self) -> None:
        """No checkpoint is kept."""

    def rolled(self, name: LogName) -> None:
        """Nobody flushes in the background."""

    def touched(self, name: LogName) -> None:
        """No checkpoint is kept."""
