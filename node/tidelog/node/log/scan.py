"""Walk the batches of a segment file and say where, and why, the walk ended."""

from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple, Protocol

from tidelog.kernel.limits import RECOVERY_CHUNK_BYTES
from tidelog.wire.crc import crc32c
from tidelog.wire.records import HEADER, BatchHeader, new_header


class Readable(Protocol):
    """As much of a file as a walk needs."""

    @property
    def size(self) -> int: ...

    def read_into(self, position: int, buffer: memoryview) -> int: ...


class Scan:
    """One walk over the bytes from `position` to `end`; iterate it once.

    Yields (position, size, header) of each batch that is whole, in order and, where `crc` is
    asked for, has the checksum it claims. Afterwards `position` is where it stopped, `next_offset`
    the offset expected there or above, and `reason` says what is wrong there; None if nothing is.

    Offsets may jump forward: compaction took what was between, in this replica or in the one that
    it was copied from, and no setting of now tells of that.
    """

    def __init__(self, file: Readable, *, position: int, end: int, next_offset: int) -> None:
        self.position = position
        self.next_offset = next_offset
        self.reason: str | None = None
        self.check_crc = True
        self.offset_max = 2**63 - 1
        """No batch may reach beyond it."""
        self.is_out_of_order = False
        """Whether it stopped where a batch does not follow the one before."""
        self.epoch = -1
        """The leader epoch of the last batch; it never goes back."""
        self._refused: BatchHeader | None = None
        self._file = file
        self._end = end
        self._buffer = memoryview(bytearray(min(RECOVERY_CHUNK_BYTES, max(end - position, 61))))
        self._filled = 0
        self._at = 0

    def headers_only(self) -> "Scan":
        """For bytes that were checked before: no checksums."""
        self.check_crc = False
        return self

    def __iter__(self) -> Iterator[tuple[int, int, BatchHeader]]:
        unpack, buffer, make = HEADER.unpack_from, self._buffer, new_header
        while self.position < self._end:
            if self._filled - self._at < 61 and not self._fill():
                self.reason = "the header is cut short"
                return
            header = make(unpack(buffer, self._at))
            size = header.batch_length + 12
            self.reason = self._what_is_wrong(header, size)
            if self.reason is not None:
                self._refused = header
                return
            yield self.position, size, header
            self._at += size
            self.position += size
            self.next_offset = header.base_offset + header.last_offset_delta + 1
            self.epoch = header.partition_leader_epoch

    @property
    def doubted_from(self) -> int:
        """The lowest offset that what stands where it stopped may belong to. Where a batch does not
        follow the one before, either may carry a wrong offset."""
        if not self.is_out_of_order or self._refused is None:
            return self.next_offset
        return min(self.next_offset, self._refused.base_offset)

    def content(self, size: int) -> memoryview:
        """The bytes of the batch given last, by a walk that looks at checksums; none of one that is
        larger than is read at a time."""
        if size > len(self._buffer):
            return memoryview(b"")
        assert self._filled - self._at >= size, (self._filled, self._at, size)
        return self._buffer[self._at : self._at + size]

    def _what_is_wrong(self, header: BatchHeader, size: int) -> str | None:
        if header.magic != 2:
            return f"magic {header.magic} instead of 2"
        if size < 61 or header.last_offset_delta < 0:
            return "the header makes no sense"
        if self.position + size > self._end:
            return "the batch is cut short"
        out_of_order = self._what_does_not_follow(header)
        if out_of_order is not None:
            self.is_out_of_order = True
            return out_of_order
        return "wrong checksum" if self.check_crc and self._crc(size) != header.crc else None

    def _what_does_not_follow(self, header: BatchHeader) -> str | None:
        """Offset and leader epoch lie outside the checksum: the order alone vouches for them."""
        if header.base_offset < self.next_offset or header.last_offset > self.offset_max:
            return f"offset {header.base_offset} instead of {self.next_offset}"
        if header.partition_leader_epoch < self.epoch:
            return f"leader epoch {header.partition_leader_epoch} after {self.epoch}"
        return None

    def _crc(self, size: int) -> int:
        if self._filled - self._at < size <= len(self._buffer):
            self._fill()
        checksum: int
        if self._filled - self._at >= size:
            checksum = crc32c(self._buffer[self._at + 21 : self._at + size])
            return checksum
        return self._crc_of_large(size)

    def _crc_of_large(self, size: int) -> int:
        """Of a batch larger than the buffer, in pieces: no length field makes us allocate."""
        checksum = crc32c(self._buffer[self._at + 21 : self._filled])
        seen = self._filled - self._at
        self._filled = self._at = 0
        while seen < size:
            part = self._buffer[: min(len(self._buffer), size - seen)]
            filled = self._file.read_into(self.position + seen, part)
            if not filled:
                return -1
            checksum = crc32c(part[:filled], checksum)
            seen += filled
        # The buffer holds the batch's last bytes now; the next header is read afresh.
        self._at = -size
        self._filled = 0
        return checksum

    def _fill(self) -> bool:
        """Bring more of the file in behind what is left; whether a header is there."""
        rest = max(self._filled - self._at, 0)
        buffer = self._buffer
        if rest:
            buffer[:rest] = buffer[self._at : self._filled]
        start = self.position + rest
        room = min(len(buffer) - rest, self._end - start)
        if room > 0:
            rest += self._file.read_into(start, buffer[rest : rest + room])
        self._at, self._filled = 0, rest
        return rest >= 61


class Course(NamedTuple):
    """What memory has of a range of batches beside what their checksums bear: these leave offsets
    and leader epochs out."""

    since: int
    """A batch begins here, at or before the range: the range's first one must follow it."""
    size: int
    """So long the segment is,"""
    end: int
    """and there it ends: an offset."""
    epochs: tuple[tuple[int, int], ...]
    """Leader epochs, each with where it begins."""
    cuts: int
    """How often the segment was cut: after one more, what is read may be something else."""
    bad_at: int | None
    """Where a batch is known to be bad: nothing before it or behind it need fit to that one."""

    def agrees(self, header: BatchHeader) -> bool:
        """Of the first epoch that is known, and may have been set back, older ones are believed."""
        at = bisect_right(self.epochs, header.last_offset, key=itemgetter(1)) - 1
        epoch = header.partition_leader_epoch
        if at <= 0:
            return not self.epochs or epoch <= self.epochs[0][0]
        return epoch == self.epochs[at][0]


def first_bad(file: Readable, position: int, size: int, course: Course | None = None) -> int | None:
    """Where the first bad one of these whole batches begins. None where all are good, and where the
    file was cut meanwhile: then nothing of them is sent either.

    Where one does not follow the one before, either may be the bad one: both are held to be.
    """
    end = position + size
    scan = Scan(file, position=position, end=end, next_offset=_offset_at(file, position, course))
    last = position
    for at, _, header in scan:
        if course is not None and not course.agrees(header):
            return at
        last = at
    if scan.reason is not None:
        if file.size < end:
            return None
        return last if scan.is_out_of_order else scan.position
    if course is None or is_followed(file, scan.position, scan.next_offset, course):
        return None
    return last


def _offset_at(file: Readable, position: int, course: Course | None) -> int:
    """What begins there has no lower offset, by the headers before it."""
    if course is None or course.since == position:
        return 0
    before = Scan(file, position=course.since, end=position, next_offset=0).headers_only()
    for _ in before:
        pass
    return before.next_offset


def is_followed(file: Readable, position: int, next_offset: int, course: Course) -> bool:
    """Whether what stands there can stand behind what ends before that offset."""
    if position >= course.size:
        return next_offset <= course.end
    if position == course.bad_at:
        return True
    head = memoryview(bytearray(HEADER.size))
    if file.read_into(position, head) < HEADER.size:
        return True  # it was cut meanwhile
    return new_header(HEADER.unpack_from(head)).base_offset >= next_offset
