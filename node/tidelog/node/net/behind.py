"""What one consumer brought into the page cache itself, so that nothing of it need stay. No I/O.

The kernel reads ahead: some of what follows a read from the disk is in the cache when it is asked
for, though nobody but this consumer wanted it. What others have there begins farther away.
"""

from typing import TYPE_CHECKING, Final, NamedTuple

from tidelog.node.log.contracts import FileSlice

if TYPE_CHECKING:
    from tidelog.kernel.files import File

_FILES_MAX: Final = 16
"""Of which is known where they were read; a consumer of more leaves what it read of the others."""
_PAGE_BYTES: Final = 4096


class Range(NamedTuple):
    """Whole pages of a file, and the slice they were read for."""

    piece: FileSlice
    start: int
    size: int


class ReadBehind:
    """Invariant: a range is given once. Its owner asks when the next answer is there: until a
    consumer has taken what it was sent, the kernel holds its pages."""

    __slots__ = ("_cold", "_sent")

    def __init__(self) -> None:
        self._cold: dict[File, int] = {}
        """Up to where what came from the disk last goes, with what the kernel read ahead."""
        self._sent: list[Range] = []

    def came_from_disk(self, piece: FileSlice, ahead: int) -> None:
        self._cold.pop(piece.file, None)
        while len(self._cold) >= _FILES_MAX:
            del self._cold[next(iter(self._cold))]
        self._cold[piece.file] = piece.position + piece.size + ahead

    def sent(self, piece: FileSlice) -> None:
        """All of it is out."""
        end = self._cold.get(piece.file)
        if end is None or piece.position > end:
            return
        start = piece.position - piece.position % _PAGE_BYTES
        stop = piece.position + piece.size
        stop -= stop % _PAGE_BYTES  # the rest of a page is for who reads on
        if stop > start:
            self._sent.append(Range(piece, start, stop - start))

    def take(self) -> list[Range]:
        """What may go by now: the consumer asked for more, or has left."""
        sent, self._sent = self._sent, []
        return sent
