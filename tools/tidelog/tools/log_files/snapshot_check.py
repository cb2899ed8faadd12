"""Holds a log's producer snapshots against the batches before them."""

from collections.abc import Mapping

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.node.log.producers import Producer, Producers, decode_snapshot
from tidelog.node.log.segment import SNAPSHOT_SUFFIX, file_name
from tidelog.node.log.snapshots import snapshot_offsets
from tidelog.tools.log_files.findings import Report
from tidelog.wire.records import BatchHeader


class SnapshotCheck:
    """Takes the batches in order, and looks at each snapshot when its offset is reached."""

    def __init__(
        self, directory: Directory, report: Report, *, compacted: bool, closed_at: int | None
    ) -> None:
        self._directory = directory
        self._report = report
        self._compacted = compacted
        self._closed_at = closed_at
        """The offset at which a clean stop wrote one: the only one that a start relies on."""
        self._waiting = snapshot_offsets(directory.names())
        self._lost = False
        self._known = Producers()
        """Of the batches so far: those that a snapshot had to be made of, as far as they exist."""

    def note(self, header: BatchHeader) -> None:
        """The next batch of the log."""
        while self._waiting and self._waiting[0] <= header.base_offset:
            self._look(self._waiting.pop(0))
        if header.producer_id >= 0:
            self._known.note(header, header.last_offset, 0)

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
        for producer_id, producer in said.items():
            reason = self._what_is_wrong(offset, producer, self._known.get(producer_id))
            if reason is not None:
                self._report.violation(place, f"producer {producer_id}: {reason}")
        self._look_for_missing(place, dict(said.items()))

    def _what_is_wrong(self, offset: int, said: Producer, known: Producer | None) -> str | None:
        ahead = [batch.last_offset for batch in said.batches if batch.last_offset >= offset]
        if ahead:
            return f"knows a batch that ends at {ahead[0]}, behind the snapshot's own {offset}"
        if known is None:
            return None  # all it wrote was deleted since
        if said.epoch != known.epoch:
            return f"says epoch {said.epoch}, the log {known.epoch}"
        if self._compacted:
            return None  # which batches there were is not known any more
        written = [batch[:4] for batch in known.batches]
        # Of the older ones, what was deleted stands in the snapshot only.
        remembered = [batch[:4] for batch in said.batches][-len(written) :] if written else []
        if remembered != written:
            return f"its last batches (sequences, offset) are {remembered}, in the log {written}"
        return None

    def _look_for_missing(self, place: str, said: Mapping[int, Producer]) -> None:
        """Who wrote later than somebody that was kept cannot have been forgotten for age."""
        if self._compacted:
            return
        kept = [producer.batches[-1].last_offset for producer in said.values() if producer.batches]
        oldest = min(kept, default=None)
        for producer_id, known in self._known.items():
            if producer_id in said or oldest is None or not known.batches:
                continue
            last = known.batches[-1].last_offset
            if last > oldest:
                self._report.violation(
                    place, f"lacks producer {producer_id}, whose last batch ends at {last}"
                )
