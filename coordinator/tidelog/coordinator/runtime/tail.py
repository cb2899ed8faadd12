"""The metadata log as a standby reads it, while another process writes it. (shell)

It makes, changes and keeps open no file. What it reads may not be on the disk yet, and a write that
fails is cut off again: so each time it first looks whether the batch it took last is still there. A
batch's head holds the epoch, and who writes after a cut writes in a higher one.
"""

from itertools import islice
from typing import Final

from msgspec import Struct

from tidelog.coordinator.controller.feed import Feed
from tidelog.coordinator.controller.settled import Settlements
from tidelog.coordinator.runtime.settled import settled_by
from tidelog.coordinator.runtime.snapshots import decode_batch, read_snapshot, snapshot_names
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.kernel.ids import Offset
from tidelog.kernel.limits import MIB
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.errors import WireError
from tidelog.wire.log_files import LOG_SUFFIX, file_name, offsets_with_suffix
from tidelog.wire.records import (
    HEADER_BYTES,
    BatchHeader,
    check_crc,
    iterate_batches,
    read_header,
)

_READ_BYTES: Final = MIB


class LostTrackError(Exception):
    """The log is not what was read of it before; begin anew."""


class _Taken(Struct, frozen=True):
    """The batch that was taken last: where it lies, and its head."""

    segment: int
    position: int
    head: bytes


class Tail:
    """The images that the log makes, as far as it was read.

    Invariant: both images are the log up to `next`, each batch whole and under its checksum.
    Whether the log is damaged is not said here, but by whoever has the lock and loads it.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._start_over()

    def _start_over(self) -> None:
        self.image = MetadataImage()
        """For the controller."""
        self.feed = Feed(MetadataImage())
        self.settlements = Settlements(Offset(0))
        self._segment: int | None = None
        self._position = 0
        self._last: _Taken | None = None

    @property
    def next(self) -> Offset:
        """The first offset that was not read."""
        return Offset(self.image.offset + 1)

    def follow(self) -> bool:
        """Take a part of what was written since; whether there may be more at once.

        LostTrackError where it must begin anew, with the next call.
        """
        try:
            return self._follow()
        except (CorruptError, WireError, AssertionError, LookupError) as error:
            self._start_over()
            raise LostTrackError(str(error)) from error
        except LostTrackError:
            self._start_over()
            raise

    def read_to_end(self) -> bool:
        """Everything, now that nobody writes any more; whether it can be gone on from."""
        try:
            while self.follow():
                pass
        except LostTrackError:
            return False
        return self._last is not None

    def _is_true(self) -> bool:
        """Whether what was read is still what the log begins with."""
        last = self._last
        if last is None:
            return True
        name = file_name(last.segment, LOG_SUFFIX)
        return self._directory.read_part(name, last.position, HEADER_BYTES) == last.head

    def _follow(self) -> bool:
        if self._segment is None:
            return self._begin()
        if not self._is_true():
            raise LostTrackError("the batch that was read last is not there any more")
        content = self._read(self._segment, _READ_BYTES)
        if self._take(self._segment, content):
            return True
        if len(content) == _READ_BYTES:
            whole = self._read(self._segment, read_header(content).size_bytes)
            return self._take(self._segment, whole)
        return self._next_segment(self._segment)

    def _begin(self) -> bool:
        """With the newest whole snapshot, and the segment that goes on from it."""
        for name in snapshot_names(self._directory):
            try:
                records = read_snapshot(self._directory, name)
            except CorruptError:
                continue
            for image in (self.image, self.feed.image):
                image.load(name.offset, records)
            break
        bases = sorted(offsets_with_suffix(self._directory.names(), LOG_SUFFIX))
        before = [base for base in bases if base <= self.next]
        if bases and not before:
            raise LostTrackError(f"the log begins at offset {bases[0]}")
        if before:
            self._segment = before[-1]
            self.settlements.begins = Offset(before[-1])
        return bool(before)

    def _read(self, segment: int, size: int) -> memoryview:
        content = self._directory.read_part(file_name(segment, LOG_SUFFIX), self._position, size)
        if content is None:
            raise LostTrackError(f"the segment at offset {segment} is gone")
        return memoryview(content)

    def _take(self, segment: int, content: memoryview) -> bool:
        """The whole batches among these bytes; whether there was one."""
        before = self._position
        for header, batch in iterate_batches(content):
            if not check_crc(batch):
                break  # being written, or damaged: who has the lock will know
            self._replay(header, batch)
            self._last = _Taken(segment, self._position, bytes(batch[:HEADER_BYTES]))
            self._position += len(batch)
        return self._position > before

    def _replay(self, header: BatchHeader, batch: memoryview) -> None:
        settled = settled_by(batch)
        if settled is not None:
            self.settlements.note(Offset(header.base_offset), settled)
        known = self.next - header.base_offset
        if known < 0:
            raise LostTrackError(f"after offset {self.image.offset} comes {header.base_offset}")
        records = tuple(islice(decode_batch(batch, place=self._directory.path), known, None))
        if records:
            self.feed.committed(records)
        for record in records:
            self.image.replay(record)

    def _next_segment(self, segment: int) -> bool:
        """Once it is there, nothing more is written to this one."""
        following = self.next
        if following == segment or self._directory.size(file_name(following, LOG_SUFFIX)) is None:
            return False
        if self._directory.size(file_name(segment, LOG_SUFFIX)) != self._position:
            return False  # written between our two looks, so the next one finds it
        self._segment, self._position = following, 0
        return True
