"""What one consumer brought into the page cache itself, so that nothing of it need stay. No I/O.

The kernel reads ahead: some of what follows a read from the disk is in the cache when it is asked
for, though nobody but this consumer wanted it. So where a pass begins with a read from the disk it
is noted up to where nothing of the file was in memory: what others have there begins behind it.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.kernel.limits import MIB
from tidelog.node.log.contracts import FileSlice

if TYPE_CHECKING:
    from tidelog.kernel.files import File

_FILES_MAX: Final = 16
"""Of which is known where they were read; a consumer of more leaves what it read of the others."""
_PAGE_BYTES: Final = 4096
_PIECE_BYTES_MAX: Final = 8 * MIB
"""The kernel keeps what it read ahead in large pieces, and drops each as a whole or not at all: so
what was read before goes once more with what is read next."""


class _Pass(NamedTuple):
    """One way through a file."""

    begun: int
    upto: int
    """There began what others had in memory."""


class Range(NamedTuple):
    """Whole pages of a file, and the slice they were read for."""

    piece: FileSlice
    start: int
    size: int


class ReadBehind:
    """Invariant: a range is given once. Its owner asks when the next answer is there: until a
    consumer has taken what it was sent, the kernel holds its pages."""

    __slots__ = ("_passes", "_sent")

    def __init__(self) -> None:
        self._passes: dict[File, _Pass] = {}
        self._sent: list[Range] = []

    def knows(self, piece: FileSlice) -> bool:
        """Whether it lies in a pass that has begun."""
        known = self._passes.get(piece.file)
        return known is not None and known.begun <= piece.position < known.upto

    def begins(self, piece: FileSlice, upto: int) -> None:
        """It comes from the disk, and so does what follows it up to there."""
        self._passes.pop(piece.file, None)
        while len(self._passes) >= _FILES_MAX:
            del self._passes[next(iter(self._passes))]
        self._passes[piece.file] = _Pass(piece.position, upto)

    def sent(self, piece: FileSlice) -> None:
        """All of it is out."""
        known = self._passes.get(piece.file)
        if known is None or not self.knows(piece):
            return
        start = max(known.begun, piece.position - _PIECE_BYTES_MAX)
        start -= start % _PAGE_BYTES
        stop = piece.position + piece.size
        stop -= stop % _PAGE_BYTES  # the rest of a page is for who reads on
        if stop > start:
            self._sent.append(Range(piece, start, stop - start))

    def take(self) -> list[Range]:
        """What may go by now: the consumer asked for more, or has left."""
        sent, self._sent = self._sent, []
        return sent
