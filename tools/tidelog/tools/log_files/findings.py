"""What a check of files says: violations, remarks, and how much was looked at."""

from collections import Counter
from collections.abc import Callable
from enum import Enum

from msgspec import Struct

FINDINGS_OF_FILE_MAX = 20


class Level(Enum):
    """How bad it is."""

    VIOLATION = "violation"
    """The files say something that is not true, and would be believed."""
    REMARK = "remark"
    """Not as it should be; but whoever uses it sees that too, and makes it anew or goes without."""


class Finding(Struct, frozen=True):
    """One thing, and where it is."""

    level: Level
    file: str
    position: int | None
    reason: str


class Looked(Struct):
    """How much was looked at."""

    directories: int = 0
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    bytes: int = 0

    def add(self, other: "Looked") -> None:
        self.directories += other.directories
        self.partitions += other.partitions
        self.segments += other.segments
        self.batches += other.batches
        self.bytes += other.bytes


class Report:
    """Findings as they come; of one file only so many."""

    def __init__(self, progress: Callable[[int], None] | None = None) -> None:
        self.findings: list[Finding] = []
        self.looked = Looked()
        self.progress = progress
        self._of_file: Counter[str] = Counter()

    @property
    def violations(self) -> list[Finding]:
        return [one for one in self.findings if one.level is Level.VIOLATION]

    @property
    def remarks(self) -> list[Finding]:
        return [one for one in self.findings if one.level is Level.REMARK]

    def violation(self, file: str, reason: str, position: int | None = None) -> None:
        self._add(Finding(Level.VIOLATION, file, position, reason))

    def remark(self, file: str, reason: str, position: int | None = None) -> None:
        self._add(Finding(Level.REMARK, file, position, reason))

    def take(self, finding: Finding) -> None:
        """From another report."""
        self._add(finding)

    def read(self, byte_count: int) -> None:
        """So many more bytes were looked at."""
        self.looked.bytes += byte_count
        if self.progress is not None:
            self.progress(byte_count)

    def clear(self) -> None:
        """As if nothing had been looked at."""
        self.findings.clear()
        self._of_file.clear()
        self.looked = Looked()

    def _add(self, finding: Finding) -> None:
        self._of_file[finding.file] += 1
        count = self._of_file[finding.file]
        if count <= FINDINGS_OF_FILE_MAX:
            self.findings.append(finding)
        elif count == FINDINGS_OF_FILE_MAX + 1:
            self.findings.append(
                Finding(finding.level, finding.file, finding.position, "and more like these")
            )
