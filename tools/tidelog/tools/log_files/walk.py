"""Batch after batch of one file, also behind a bad one where the next can be told."""

from collections.abc import Iterator
from typing import NamedTuple

from tidelog.kernel.files import File
from tidelog.node.log.scan import Scan
from tidelog.wire.records import HEADER_BYTES, MAGIC, BatchHeader, read_header

BAD_BATCHES_MAX = 100
"""In one file; behind them it is not worth reading on."""


class Seen(NamedTuple):
    """A batch, or what stands where one should."""

    position: int
    size: int
    header: BatchHeader | None
    wrong: str | None


class Walk:
    """Iterate it once; then `position` is where it ended, before the file's end if it is lost.

    The engine's `Scan` judges each batch; this goes on behind the one that it refuses.
    """

    def __init__(self, file: File, *, next_offset: int, position: int = 0, epoch: int = -1) -> None:
        self.position = position
        self.next_offset = self.doubted_from = next_offset
        """`doubted_from`: the lowest offset that the bad batch given last may have."""
        self.epoch = epoch
        self.check_crc = True
        self.end = file.size
        self._file = file

    def __iter__(self) -> Iterator[Seen]:
        for _ in range(BAD_BATCHES_MAX):
            scan = self._scan()
            for position, size, header in scan:
                yield Seen(position, size, header, None)
                self.position = position + size
            self.position, self.next_offset = scan.position, scan.next_offset
            self.doubted_from = scan.doubted_from
            self.epoch = scan.epoch
            if scan.reason is None:
                return
            header_there = self._header(self.position)
            size = self.end - self.position
            after = None if header_there is None else self._after(header_there)
            if after is not None:
                size = after - self.position
            yield Seen(self.position, size, header_there, scan.reason)
            if header_there is None or after is None:
                return
            self._step_over(header_there, after)

    def _scan(self) -> Scan:
        scan = Scan(self._file, position=self.position, end=self.end, next_offset=self.next_offset)
        scan.epoch = self.epoch
        scan.check_crc = self.check_crc
        return scan

    def _header(self, position: int) -> BatchHeader | None:
        if position + HEADER_BYTES > self.end:
            return None
        return read_header(self._file.read(position, HEADER_BYTES))

    def _after(self, header: BatchHeader) -> int | None:
        """Where the bad batch ends, if a batch or the file's end is there."""
        after = self.position + header.size_bytes
        if header.size_bytes < HEADER_BYTES or after > self.end:
            return None
        if after == self.end:
            return after
        following = self._header(after)
        return after if following is not None and following.magic == MAGIC else None

    def _step_over(self, bad: BatchHeader, after: int) -> None:
        following = self._header(after)
        found = None if following is None else following.base_offset
        # Which of the two lies, the bad batch's offset or its length in offsets, the next one says.
        expected = {bad.next_offset, self.next_offset + bad.last_offset_delta + 1}
        self.next_offset = found if found is not None and found in expected else bad.next_offset
        self.position = after
