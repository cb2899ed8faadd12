"""A shard out of its log: a chunk at a time, so that whoever else asks the broker is served too."""

from typing import Final, Protocol

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import Offset
from tidelog.kernel.limits import MIB
from tidelog.node.groups import codec
from tidelog.node.groups.records import OffsetRecord, PendingOffset
from tidelog.node.groups.shard import GroupShard
from tidelog.node.log.contracts import FileSlice
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.records import BatchHeader, check_crc, iterate_batches, iterate_records

CHUNK_BYTES: Final = MIB // 4
"""About 20 ms of the loop."""
_COMMIT_MARKER: Final = 1


class ReadableLog(Protocol):
    """As much of a log as loading uses."""

    start: int
    end: int

    def read(
        self, offset: int, max_bytes: int, limit: int, *, min_one: bool
    ) -> FileSlice | None: ...


class Loading:
    """Replays what a log holds when its leadership begins. Markers may come meanwhile: whoever
    appends one moves `end`."""

    def __init__(self, shard: GroupShard, log: ReadableLog, place: str) -> None:
        self.shard = shard
        self._log = log
        self._place = place
        self._next = log.start
        self.end = Offset(log.end)
        self.has_read = False
        """Whether there was anything to read."""

    def go_on(self) -> bool:
        """Replay the next chunk; whether more is left. CorruptError where its bytes are bad."""
        # Records that nobody had read yet may be deleted while this waits for its next turn.
        self._next = max(self._next, self._log.start)
        found = self._log.read(self._next, CHUNK_BYTES, self.end, min_one=True)
        if found is None:
            return False
        self.has_read = True
        try:
            self._replay(found.file.read(found.position, found.size))
        except (WireError, Rejected) as error:
            raise CorruptError(file=self._place, position=self._next, reason=str(error)) from error
        return self._next < self.end

    def _replay(self, chunk: memoryview) -> None:
        before = self._next
        for header, batch in iterate_batches(chunk):
            if not check_crc(batch):
                raise WireError(f"wrong checksum at offset {header.base_offset}")
            if header.is_control:
                self._marker(header, batch)
            else:
                self._records(header, batch)
            self._next = header.next_offset
        if self._next <= before:
            raise WireError(f"no whole batch at offset {before}")

    def _marker(self, header: BatchHeader, batch: memoryview) -> None:
        for record in iterate_records(batch):
            kind = int.from_bytes((record.key or b"")[2:4], "big")
            self.shard.replay_marker(header.producer_id, committed=kind == _COMMIT_MARKER)

    def _records(self, header: BatchHeader, batch: memoryview) -> None:
        rows = (codec.read(record.key or b"", record.value) for record in iterate_records(batch))
        known = (row for row in rows if row is not None)
        for row in known:
            if not header.is_transactional:
                self.shard.replay(row)
            elif isinstance(row, OffsetRecord):
                pending = PendingOffset(header.producer_id, header.producer_epoch, row)
                self.shard.replay(pending)
