"""What goes in and out of a log, and what it asks of the directory that holds it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import File
from tidelog.kernel.ids import Partition, TopicPartition, Uuid
from tidelog.kernel.instant import Instant
from tidelog.node.log.cache_rules import KERNEL
from tidelog.node.log.epochs import EpochCache
from tidelog.node.log.scan import Course

if TYPE_CHECKING:
    from tidelog.node.log.log import Log

OnBad = Callable[[CorruptError], None]


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


class Trust(Protocol):
    """What is known of the bytes of a file. What this process wrote or checked is as it was while
    it stays in memory; what comes from the disk may have rotted there."""

    @property
    def cuts(self) -> int:
        """How often the end of the file was cut off."""

    def trusts(self, start: int, stop: int) -> bool: ...

    def checked(self, start: int, stop: int) -> None:
        """These are good."""

    def doubted(self) -> None:
        """Something had to come from the disk, and more may come unseen: check it all once more."""

    def found_bad(self, position: int) -> None:
        """The batch there is bad."""

    def course(self, start: int, epochs: EpochCache) -> Course:
        """What else must be so of the batches from there on."""


class FileSlice:
    """Batches as they lie in a file; the shell sends them, read once only where they need it."""

    __slots__ = (
        "_course",
        "_epochs",
        "_is_checked",
        "_trust",
        "cache",
        "file",
        "on_bad",
        "position",
        "size",
    )

    def __init__(
        self,
        file: File,
        position: int,
        size: int,
        trust: "Trust | None" = None,
        epochs: EpochCache | None = None,
    ) -> None:
        assert size > 0
        self.file = file
        self.position = position
        self.size = size
        self.on_bad: OnBad = _nobody_asks
        """Told when a batch of it turns out bad."""
        self.cache = KERNEL
        """How it is to be read."""
        self._trust = trust
        self._epochs = epochs
        self._course: Course | None = None
        self._is_checked = trust is None

    @property
    def is_trusted(self) -> bool:
        """Whether it may be sent as it is."""
        trust = self._trust
        return (
            self._is_checked
            or trust is None
            or trust.trusts(self.position, self.position + self.size)
        )

    @property
    def was_checked(self) -> bool:
        """Since it was doubted last; or it need not be."""
        return self._is_checked

    def doubt(self) -> None:
        """Some of it is not in memory."""
        if self._trust is not None:
            self._is_checked = False
            self._trust.doubted()

    def course(self) -> Course | None:
        """What a check holds it against, beside checksums; None where nobody knows."""
        if self._trust is not None and self._epochs is not None:
            self._course = self._trust.course(self.position, self._epochs)
        return self._course

    def found(self, bad: int | None) -> bool:
        """What a check found: where the first bad batch begins. Whether it may be sent."""
        self._is_checked = True
        if self._trust is None:
            return True
        if bad is None:
            self._trust.checked(self.position, self.position + self.size)
            return True
        if self._course is not None and self._trust.cuts != self._course.cuts:
            return False  # what was read stands there no more: no word on the disk
        self._trust.found_bad(bad)
        reason = "a batch that a client asked for is bad"
        self.on_bad(CorruptError(file=self.file.name, position=bad, reason=reason))
        return False

    def __len__(self) -> int:
        return self.size

    def __repr__(self) -> str:
        return f"FileSlice({self.file.name!r}, {self.position}, {self.size})"


def _nobody_asks(_error: CorruptError) -> None: ...


class LogKeeper(Protocol):
    """Who keeps what is written once for all logs of a directory."""

    def files_wanted(self, name: LogName) -> None:
        """A log is about to make its first files."""

    def checkpoint_first(self) -> None:
        """A recovery point or start went back: that must be on disk before the files follow."""

    def keep_start(self, name: LogName, start: int) -> None:
        """Blocks until the checkpoint on disk tells a start no earlier than this one."""

    def committed_beyond(self, name: LogName, end: int) -> bool:
        """Whether a checkpoint tells a high watermark beyond this end of the log."""

    def forget_committed(self, name: LogName, end: int) -> None:
        """The log is about to grow from there. Blocks until no checkpoint tells a high watermark
        beyond: else the next life would take what comes now for committed."""

    def rolled(self, name: LogName) -> None:
        """A segment was sealed: a flush in the background should follow."""

    def flush_wanted(self, log: "Log", when: Instant) -> None:
        """Too much of it is unflushed by then: flush it in a round."""

    def grew(self, log: "Log") -> None:
        """As `touched`, by an append."""

    def touched(self, name: LogName) -> None:
        """Its start, end or recovery point moved, or it has files now."""


class NoKeeper:
    """For a log that stands alone: whoever owns it keeps its recovery point, or scans it all."""

    def files_wanted(self, name: LogName) -> None:
        """Nothing to prepare."""

    def checkpoint_first(self) -> None:
        """No checkpoint is kept."""

    def keep_start(self, name: LogName, start: int) -> None:
        """No checkpoint is kept."""

    def committed_beyond(self, name: LogName, end: int) -> bool:  # noqa: ARG002 -- see LogKeeper
        """No checkpoint is kept."""
        return False

    def forget_committed(self, name: LogName, end: int) -> None:
        """No checkpoint is kept."""

    def rolled(self, name: LogName) -> None:
        """Nobody flushes in the background."""

    def flush_wanted(self, log: "Log", when: Instant) -> None:
        """Whoever owns it flushes when it likes."""

    def grew(self, log: "Log") -> None:
        """Nobody cares for its pages."""

    def touched(self, name: LogName) -> None:
        """No checkpoint is kept."""
