"""Which transactional batches compaction may discard.

As Kafka: the data of an aborted transaction goes at once; a marker stays until a pass met nothing
of its transaction any more, and then until its delete horizon has passed.
"""

import heapq
from collections.abc import Iterable
from struct import Struct
from typing import Final

from tidelog.wire.log_files import Aborted
from tidelog.wire.records import BatchHeader

_KEY_HEAD: Final = Struct(">hh")
_ABORT: Final = 0
_COMMIT: Final = 1


class _Aborting:
    """An aborted transaction whose marker has not come yet."""

    __slots__ = ("entry", "met")

    def __init__(self, entry: Aborted) -> None:
        self.entry = entry
        self.met = False
        """Whether a batch of it is in the log."""


class Transactions:
    """Follows the transactions while the log is read from its start.

    Each batch is shown once, in order of offset.
    """

    __slots__ = ("_aborting", "_coming", "_committing", "kept")

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._coming = list(set(aborted))
        heapq.heapify(self._coming)
        self._aborting: dict[int, _Aborting] = {}
        self._committing: set[int] = set()
        self.kept: list[Aborted] = []
        """For the index of the segment that is being written: take them and clear."""

    def discards_data(self, header: BatchHeader) -> bool:
        """Whether a batch of records belongs to a transaction that was aborted."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        aborting = self._aborting.get(header.producer_id)
        if aborting is None or aborting.entry.last_offset < header.base_offset:
            # Of an entry whose marker is gone already, nothing may be said of a later transaction.
            self._committing.add(header.producer_id)
            return False
        aborting.met = True
        return True

    def discards_marker(self, header: BatchHeader, key: bytes | None) -> bool:
        """Whether nothing of a marker's transaction is left; `key` is None of an emptied batch."""
        self._begin_up_to(header.last_offset)
        if key is None:
            return True
        kind = _KEY_HEAD.unpack_from(key)[1] if len(key) >= _KEY_HEAD.size else -1
        if kind == _COMMIT:
            met = header.producer_id in self._committing
            self._committing.discard(header.producer_id)
            return not met
        if kind != _ABORT:
            return False
        aborting = self._aborting.pop(header.producer_id, None)
        if aborting is None or not aborting.met:
            return True
        self.kept.append(aborting.entry)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            entry = heapq.heappop(self._coming)
            known = self._aborting.get(entry.producer_id)
            if known is None or known.entry.last_offset < entry.first_offset:
                self._aborting[entry.producer_id] = _Aborting(entry)
