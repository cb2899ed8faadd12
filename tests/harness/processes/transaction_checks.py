"""What logs and readers say of transactions: T1, T4, and that each input came out exactly once.

T1: a transaction has one outcome, the same in each partition, and one marker in each. T4: nothing
of a transaction comes after its end, and none stays open.
"""

import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.wire.records import BatchHeader, Record, iterate_batches, iterate_records

_KEY: Final = struct.Struct(">hh")
"""Of a marker: version, and 1 for commit."""
_VALUE: Final = struct.Struct(">hi")
"""Of a marker: version, the coordinator's epoch."""
_SHOWN: Final = 5


class Marker(NamedTuple):
    """The end of a transaction in one partition."""

    producer_id: int
    epoch: int
    committed: bool
    coordinator_epoch: int
    offset: int


class Told:
    """What one partition's log says, from its start to its end."""

    def __init__(self, name: str, log: bytes) -> None:
        self.name = name
        self.is_internal = name.startswith("__")
        self._is_tagged = not self.is_internal and "-changelog-" not in name
        """Whether keys are what the records of one transaction have in common."""
        self.wrong: list[str] = []
        self.markers: list[Marker] = []
        self.committed: list[Record] = []
        """What a reader of committed records gets, whoever wrote it."""
        self.outcomes: dict[bytes, set[bool]] = defaultdict(set)
        """By the records' keys: those of one transaction share one, where they have any."""
        self._open: dict[int, list[tuple[int, list[Record]]]] = {}
        """By producer: the epoch and the records of each batch that has no outcome yet."""
        self._last: dict[int, Marker] = {}
        for header, batch in iterate_batches(memoryview(log)):
            self._take(header, list(iterate_records(batch)))
        for producer_id, batches in self._open.items():
            offset = batches[0][1][0].offset
            self._is_wrong(f"T4: the transaction of {producer_id} at {offset} stays open")

    def _is_wrong(self, what: str) -> None:
        self.wrong.append(f"{self.name}: {what}")

    def _take(self, header: BatchHeader, records: list[Record]) -> None:
        if header.is_control:
            self._end(header, records[0])
        elif header.is_transactional:
            last = self._last.get(header.producer_id)
            if last is not None and header.producer_epoch < last.epoch:
                self._is_wrong(
                    f"T4: {header.base_offset} is of epoch {header.producer_epoch} of "
                    f"{header.producer_id}, after the end of {last.epoch} at {last.offset}"
                )
            entry = (header.producer_epoch, records)
            self._open.setdefault(header.producer_id, []).append(entry)
        else:
            self.committed += records

    def _end(self, header: BatchHeader, record: Record) -> None:
        assert record.key is not None
        assert record.value is not None
        _, kind = _KEY.unpack_from(record.key)
        _, coordinator = _VALUE.unpack_from(record.value)
        end = Marker(
            header.producer_id, header.producer_epoch, kind == 1, coordinator, record.offset
        )
        batches = self._open.pop(end.producer_id, [])
        self._check(end, batches)
        self._last[end.producer_id] = end
        self.markers.append(end)
        for _, records in batches:
            if end.committed:
                self.committed += records
            for one in records:
                if one.key is not None and self._is_tagged:
                    self.outcomes[one.key].add(end.committed)

    def _check(self, end: Marker, batches: list[tuple[int, list[Record]]]) -> None:
        last = self._last.get(end.producer_id)
        if last is not None and last.epoch > end.epoch:
            self._is_wrong(f"T1: the marker at {end.offset} is of an older epoch than {last}")
        if last is not None and last.coordinator_epoch > end.coordinator_epoch:
            self._is_wrong(f"T1: the marker at {end.offset} is of an older coordinator than {last}")
        if any(epoch > end.epoch for epoch, _ in batches):
            self._is_wrong(f"T1: the marker at {end.offset} ends a newer epoch than its own")
        if not batches and end.committed:
            self._is_wrong(f"T1: the marker at {end.offset} commits nothing")
        if not batches and last is not None and last.epoch == end.epoch and not last.committed:
            self._is_wrong(f"T1: the marker at {end.offset} is there twice, also at {last.offset}")


def wrong_transactions(told: Sequence[Told], *, bumps: bool) -> list[str]:
    """Over all partitions; with `bumps` each end raises the epoch, so no two share one."""
    wrong = [what for one in told for what in one.wrong]
    wrong += _both(pair for one in told for pair in one.outcomes.items())
    return [*wrong, *_shared_epochs(told)] if bumps else wrong


def _shared_epochs(told: Sequence[Told]) -> Iterator[str]:
    """Of those that write to other topics than the cluster's own, where anybody may have been."""
    ours = {one.producer_id for log in told if not log.is_internal for one in log.markers}
    ends = [(log.name, one) for log in told for one in log.markers if one.producer_id in ours]
    yield from _both(((end.producer_id, end.epoch), {end.committed}) for _, end in ends)
    places = Counter((name, end.producer_id, end.epoch) for name, end in ends)
    yield from (f"T1: {place} ended twice" for place, count in places.items() if count > 1)


def _both(outcomes: Iterable[tuple[object, set[bool]]]) -> Iterator[str]:
    """What was committed here and aborted there."""
    by_name = defaultdict[object, set[bool]](set)
    for name, found in outcomes:
        by_name[name] |= found
    return (f"T1: {name!r} has both outcomes" for name, found in by_name.items() if len(found) > 1)


def wrong_numbers(name: str, numbers: Iterable[int], count: int) -> Iterator[str]:
    """Each number below `count` has to be there exactly once."""
    found = Counter(numbers)
    lost = [number for number in range(count) if number not in found]
    twice = [number for number, times in found.items() if times > 1]
    strange = [number for number in found if not 0 <= number < count]
    for what, those in (("lost", lost), ("there twice", twice), ("nobody's", strange)):
        if those:
            yield f"{name}: {len(those)} are {what}, such as {sorted(those)[:_SHOWN]}"


def wrong_counts(told: Iterable[Told], topic: str, count: int) -> Iterator[str]:
    """What is committed of a counter in each partition has to be 1, 2, and so on up to `count`."""
    for one in told:
        if one.name.rpartition("-")[0] == topic:
            found = [int.from_bytes(record.value or b"", "big") for record in one.committed]
            if found != list(range(1, count + 1)):
                yield f"{one.name}: counted {found[:_SHOWN]} … {found[-_SHOWN:]}, not up to {count}"


def numbers_of(told: Iterable[Told], topic: str) -> Iterator[int]:
    """What is committed in the partitions of a topic; a partition is named TOPIC-N."""
    for one in told:
        if one.name.rpartition("-")[0] == topic:
            for record in one.committed:
                assert record.value is not None
                yield int(record.value)


def told_by(logs: Mapping[str, bytes]) -> list[Told]:
    return [Told(name, log) for name, log in sorted(logs.items())]
