"""Reads the metadata log: the image that its records make."""

from collections.abc import Iterator, Sequence

from tidelog.coordinator.runtime.snapshots import SnapshotName, decode_batch, snapshot_names
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory, File
from tidelog.kernel.ids import Offset
from tidelog.node.metadata.image import MetadataImage
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.kinds import METADATA_TOPIC
from tidelog.tools.log_files.walk import Walk
from tidelog.wire.log_files import LOG_SUFFIX, file_name, offsets_with_suffix
from tidelog.wire.metadata_records import MetadataRecord, SnapshotEnded
from tidelog.wire.records import BatchHeader

NAME = f"{METADATA_TOPIC}-0"


def read_image(directory: Directory) -> MetadataImage:
    """What the files of a metadata log say, as far as they can be read."""
    return Replay(directory, Report()).run()


class Replay:
    """Replays the log, and holds each snapshot against the image it was made of."""

    def __init__(self, directory: Directory, report: Report) -> None:
        self._directory = directory
        self._report = report
        self._image = MetadataImage()
        self._waiting: list[tuple[SnapshotName, MetadataImage]] = []

    def run(self) -> MetadataImage:
        for name in reversed(snapshot_names(self._directory)):
            loaded = self._load(name)
            if loaded is not None:
                self._waiting.append((name, loaded))
        bases = sorted(offsets_with_suffix(self._directory.names(), LOG_SUFFIX))
        if self._waiting and bases and bases[0] > 0:
            self._image = self._waiting.pop(0)[1]
        try:
            for base in bases:
                self._replay_segment(base)
        except CorruptError as error:
            self._report.violation(error.file, error.reason, error.position)
        return self._image

    # -- the log

    def _replay_segment(self, base: int) -> None:
        file = self._directory.open(file_name(base, LOG_SUFFIX))
        place = f"{self._directory.path}/{file.name}"
        for header, batch in good_batches(file, base):
            if header.last_offset <= self._image.offset:
                continue
            records = decode_batch(batch, place=place)
            for offset, record in enumerate(records, header.base_offset):
                if offset > self._image.offset:
                    self._replay(record, place)
        file.close()

    def _replay(self, record: MetadataRecord, place: str) -> None:
        image = self._image
        try:
            image.replay(record)
        except (AssertionError, LookupError) as error:
            reason = f"the record at offset {image.offset} contradicts those before: {error!r}"
            raise CorruptError(file=place, position=image.offset, reason=reason) from error
        while self._waiting and self._waiting[0][0].offset == image.offset:
            name, loaded = self._waiting.pop(0)
            if loaded != image:
                self._report.violation(
                    f"{self._directory.path}/{name.file}",
                    f"is not what the log says up to offset {image.offset}",
                )

    # -- snapshots

    def _load(self, name: SnapshotName) -> MetadataImage | None:
        place = f"{self._directory.path}/{name.file}"
        file = self._directory.open(name.file)
        records: list[MetadataRecord] = []
        try:
            records = self._records(file, name, place)
        except CorruptError as error:
            self._report.violation(place, error.reason, error.position)
            return None
        finally:
            file.close()
        image = MetadataImage()
        try:
            image.load(Offset(name.offset), records)
        except (AssertionError, LookupError) as error:
            self._report.violation(place, f"its records contradict each other: {error!r}")
            return None
        return image

    def _records(self, file: File, name: SnapshotName, place: str) -> list[MetadataRecord]:
        records: list[MetadataRecord] = []
        walk = Walk(file, next_offset=0, epoch=name.epoch)
        for seen in walk:
            self._report.read(seen.size)
            if seen.wrong is not None or seen.header is None:
                raise CorruptError(file=place, position=seen.position, reason=seen.wrong or "bad")
            if seen.header.partition_leader_epoch != name.epoch:
                raise CorruptError(
                    file=place, position=seen.position, reason="is of another epoch than its name"
                )
            records += decode_batch(file.read(seen.position, seen.size), place=place)
        _check_end(records, place)
        return records


def _check_end(records: Sequence[MetadataRecord], place: str) -> None:
    if not records or records[-1] != SnapshotEnded(len(records) - 1):
        raise CorruptError(file=place, position=len(records), reason="its end is missing")


def good_batches(file: File, base: int) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Up to the first that is not: what is behind it has no meaning."""
    for seen in Walk(file, next_offset=base):
        if seen.wrong is not None or seen.header is None:
            return
        yield seen.header, file.read(seen.position, seen.size)
