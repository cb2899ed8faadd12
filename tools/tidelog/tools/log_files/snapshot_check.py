"""Holds a log's producer snapshots against the batches before them."""

from collections.abc import Callable, Mapping

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.node.log.producer_snapshot import decode_snapshot
from tidelog.node.log.producers import Producer, Producers
from tidelog.node.log.snapshots import snapshot_offsets
from tidelog.tools.log_files.findings import Report
from tidelog.wire.log_files import SNAPSHOT_SUFFIX, Aborted, file_name
from tidelog.wire.records import BatchHeader


class SnapshotCheck:
    """Takes the batches in order, and looks at each snapshot when its offset is reached."""

    def __init__(
        self,
        directory: Directory,
        report: Report,
        first: int,
        *,
        compacted: bool,
        closed_at: int | None,
    ) -> None:
        self._directory = directory
        self._report = report
        self._first = first
        """Where the log's first segment begins: of what lies below it no batch is there."""
        before = None if first == 0 else _before(directory, first)
        self.unknown_below = 0 if before is not None else first
        """What was written below it, and is deleted, stands in snapshots and indexes alone."""
        self._compacted = compacted
        self._closed_at = closed_at
        """The offset at which a clean stop wrote one: the only one that a start relies on."""
        self._waiting = snapshot_offsets(directory.names())
        self._lost = False
        self._known = Producers() if before is None else before
        """Of the batches so far: those that a snapshot had to be made of, as far as they exist."""

    def note(self, header: BatchHeader, read: Callable[[], memoryview]) -> Aborted | None:
        """The next batch of the log; the transaction that it aborts."""
        while self._waiting and self._waiting[0] <= header.base_offset:
            self._look(self._waiting.pop(0))
        if header.is_control:
            return self._known.take_control(header, read(), 0)
        if header.producer_id >= 0:
            self._known.note(header, header.last_offset, 0)
        return None

    def lose_track(self) -> None:
        """A batch cannot be read: who wrote what from here on is not known."""
        self._lost = True

    def finish(self, end: int, *, whole: bool) -> None:
        """The log ends at this offset; `whole` unless batches could not be read."""
        closed_at = self._closed_at
        if closed_at is not None and not self._directory.exists(
            file_name(closed_at, SNAPSHOT_SUFFIX)
        ):
            self._report.violation(self._place(closed_at), "is missing after a clean stop")
        for offset in self._waiting:
            if offset <= end:
                self._look(offset)
            elif whole:
                self._report.violation(
                    self._place(offset), f"is of offset {offset}, the log ends at {end}"
                )
        self._waiting = []

    def _place(self, offset: int) -> str:
        return f"{self._directory.path}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def _look(self, offset: int) -> None:
        place = self._place(offset)
        content = self._directory.read_all(file_name(offset, SNAPSHOT_SUFFIX))
        try:
            said = decode_snapshot(content or b"", place=place)
        except CorruptError as error:
            if offset == self._closed_at:
                self._report.violation(place, error.reason, error.position)
            else:
                # A power loss leaves such a file; whoever comes by passes over it.
                self._report.remark(place, error.reason, error.position)
            return
        self._report.read(len(content or b""))
        if self._lost:
            return
        known = self._known if offset >= self._first else Producers()
        for producer_id, producer in said.items():
            reason = self._what_is_wrong(offset, producer, known.get(producer_id))
            if reason is not None:
                self._report.violation(place, f"producer {producer_id}: {reason}")
        if offset >= self._first:
            self._look_for_missing(place, dict(said.items()))

    def _what_is_wrong(self, offset: int, said: Producer, known: Producer | None) -> str | None:
        ahead = [batch.last_offset for batch in said.batches if batch.last_offset >= offset]
        if ahead:
            return f"knows a batch that ends at {ahead[0]}, behind the snapshot's own {offset}"
        if known is None:
            return None  # all it wrote was deleted since
        if said.epoch != known.epoch and not (self._compacted and said.epoch > known.epoch):
            return f"says epoch {said.epoch}, the log {known.epoch}"
        wrong = self._what_is_wrong_of_transactions(said, known)
        if wrong is not None or self._compacted:
            return wrong  # which batches there were is not known any more
        written = [batch[:4] for batch in known.batches]
        # Of the older ones, what was deleted stands in the snapshot only.
        remembered = [batch[:4] for batch in said.batches][-len(written) :] if written else []
        if remembered != written:
            return f"its last batches (sequences, offset) are {remembered}, in the log {written}"
        return None

    def _what_is_wrong_of_transactions(self, said: Producer, known: Producer) -> str | None:
        """What began before the log's first batch, or in one that is compacted since, stands in the
        snapshot only."""
        began_before = 0 <= said.txn_start and (
            self._compacted or said.txn_start < self.unknown_below
        )
        if said.txn_start != known.txn_start and not began_before:
            return f"says its transaction is open since {said.txn_start}, the log {known.txn_start}"
        if self._compacted or known.marker is None:
            return None
        if said.coordinator_epoch != known.coordinator_epoch:
            return (
                f"says coordinator epoch {said.coordinator_epoch}, the log "
                f"{known.coordinator_epoch}"
            )
        if said.marker is not None and said.marker != known.marker:
            return f"says its last marker is {said.marker}, the log {known.marker}"
        return None

    def _look_for_missing(self, place: str, said: Mapping[int, Producer]) -> None:
        """Who wrote later than somebody that was kept cannot have been forgotten for age."""
        if self._compacted:
            return
        # Who has a transaction open is never forgotten.
        kept = [_last_of(producer) for producer in said.values() if producer.txn_start < 0]
        oldest = min((last for last in kept if last >= 0), default=None)
        for producer_id, known in self._known.items():
            last = _last_of(known)
            if producer_id not in said and oldest is not None and last > oldest:
                self._report.violation(
                    place, f"lacks producer {producer_id}, whose last batch ends at {last}"
                )


def _before(directory: Directory, first: int) -> Producers | None:
    """What a snapshot says of the batches before the log's first one."""
    content = directory.read_all(file_name(first, SNAPSHOT_SUFFIX))
    try:
        return None if content is None else decode_snapshot(content, place=directory.path)
    except CorruptError:
        return None


def _last_of(producer: Producer) -> int:
    """The offset of the last thing it wrote, or that was written for it; -1: nothing is known."""
    batch = producer.batches[-1].last_offset if producer.batches else -1
    return batch if producer.marker is None else max(batch, producer.marker.offset)
