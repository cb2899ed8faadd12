"""Checks a broker's log directory: each log, and what is kept once for all of them."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Directory
from tidelog.kernel.ids import TopicPartition, uuid_from_text, uuid_text
from tidelog.node.log.directory_names import key_of
from tidelog.node.log.marks import MARK_NAME, LastStop, Mark, decode_mark
from tidelog.tools.log_files.findings import Report
from tidelog.tools.log_files.index_watch import INTERVAL_USUAL
from tidelog.tools.log_files.kinds import (
    CLEANER_OFFSETS,
    METADATA_TOPIC,
    FileKind,
    belongs_in_log_directory,
    kind_of,
)
from tidelog.tools.log_files.verify_log import Ended, Known, Life, verify_log
from tidelog.wire import checkpoints
from tidelog.wire.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS

ALWAYS_COMPACTED: Final = frozenset({"__consumer_offsets", "__transaction_state"})
_LIVES: Final[Mapping[LastStop, Life]] = {
    LastStop.CLEAN: Life.CLOSED,
    LastStop.KILLED: Life.KILLED,
    LastStop.POWER_LOSS: Life.POWER_LOST,
    LastStop.NEVER_RAN: Life.ALONE,
}


class TopicFacts(Struct, frozen=True):
    """What the cluster's metadata says of a topic."""

    topic_id: bytes
    compacted: bool
    index_interval: int = INTERVAL_USUAL


class Around(Struct, frozen=True):
    """What is known besides the directory itself. Unknown is None, and then not checked."""

    boot_id: str = ""
    disk_generation: int = 0
    in_use: bool = False
    cluster_id: str | None = None
    node_id: int | None = None
    directory_ids: tuple[bytes, ...] | None = None
    topics: Mapping[str, TopicFacts] | None = None


class Checkpoints(Struct):
    """Of a directory; a damaged one is empty."""

    recovery_points: Mapping[TopicPartition, int]
    high_watermarks: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    cleaned: Mapping[TopicPartition, int]


def is_whole_mark(content: bytes) -> bool:
    """By its checksum, and with nothing before or behind it."""
    return decode_mark(content) is not None and (content[-1:], content.count(b"\n")) == (b"\n", 2)


def life_of(directory: Directory, around: Around) -> Life:
    """How the directory was left, or that it is in use."""
    mark = decode_mark(directory.read_all(MARK_NAME))
    if around.in_use:
        return Life.OPEN
    if mark is None:
        return Life.ALONE
    stop = mark.last_stop(boot_id=around.boot_id, disk_generation=around.disk_generation)
    return _LIVES[stop]


def read_checkpoints(directory: Directory, report: Report) -> Checkpoints:
    names = (
        checkpoints.RECOVERY_POINTS,
        checkpoints.HIGH_WATERMARKS,
        checkpoints.LOG_STARTS,
        CLEANER_OFFSETS,
    )
    return Checkpoints(*(_read_checkpoint(directory, name, report) for name in names))


def _read_checkpoint(directory: Directory, name: str, report: Report) -> checkpoints.Offsets:
    place = f"{directory.path}/{name}"
    content = directory.read_all(name)
    if content is None:
        return {}
    report.read(len(content))
    try:
        offsets = checkpoints.decode_offsets(content, place=name)
    except CorruptError as error:
        report.violation(place, error.reason, error.position)
        return {}
    if len(offsets) != content.count(b"\n") - 2:
        report.violation(place, "names a partition twice")
    elif sorted(checkpoints.encode_offsets(offsets).split()) != sorted(content.split()):
        report.violation(place, "is not written as it always is")
    return offsets


def known_of(
    key: TopicPartition, life: Life, found: Checkpoints, mark: Mark | None, around: Around
) -> Known:
    """What is known of one log besides its own files."""
    name = f"{key[0]}-{key[1]}"
    facts = (around.topics or {}).get(key[0])
    closed = mark.logs.get(name) if mark is not None and life is Life.CLOSED else None
    if life is Life.CLOSED and closed is None and key[0] != METADATA_TOPIC:
        life = Life.KILLED  # it was offline when the broker stopped
    return Known(
        life=life,
        start=found.log_starts.get(key, 0),
        recovery_point=found.recovery_points.get(key, 0),
        closed=closed,
        compacted=(
            key[0] in ALWAYS_COMPACTED
            or key in found.cleaned
            or (facts is not None and facts.compacted)
        ),
        topic_id=None if facts is None else facts.topic_id,
        index_interval=INTERVAL_USUAL if facts is None else facts.index_interval,
    )


def verify_directory(directory: Directory, around: Around, report: Report) -> None:
    """A whole log directory; what must agree between its files is held against each other."""
    check = _DirectoryCheck(directory, around, report)
    check.own_files()
    check.logs()
    check.offsets()


class _DirectoryCheck:
    """One directory's check; used once."""

    def __init__(self, directory: Directory, around: Around, report: Report) -> None:
        self._directory = directory
        self._around = around
        self._report = report
        self._life = life_of(directory, around)
        self._mark = decode_mark(directory.read_all(MARK_NAME))
        self._found = read_checkpoints(directory, report)
        self._ended: dict[TopicPartition, Ended | None] = {}
        report.looked.directories += 1

    def _place(self, name: str) -> str:
        return f"{self._directory.path}/{name}"

    # -- the directory's own files

    def own_files(self) -> None:
        for name in self._directory.names():
            if not belongs_in_log_directory(name):
                self._report.violation(self._place(name), "is not a file of a log directory")
            elif kind_of(name) is FileKind.LOCK and self._directory.size(name):
                self._report.violation(self._place(name), "holds bytes, it should be empty")
        self._check_mark()
        self._check_properties()
        self._check_clean_shutdown()

    def _check_mark(self) -> None:
        content = self._directory.read_all(MARK_NAME)
        has_logs = any(key_of(name) is not None for name in self._directory.names())
        if content is None:
            if has_logs:
                self._report.violation(self._place(MARK_NAME), "is missing")
        elif not is_whole_mark(content):
            self._report.violation(self._place(MARK_NAME), "is not whole")

    def _check_properties(self) -> None:
        name, around = checkpoints.META_PROPERTIES, self._around
        content = self._directory.read_all(name)
        place = self._place(name)
        if content is None:
            self._report.violation(place, "is missing")
            return
        try:
            said = checkpoints.decode_properties(content, place=place)
        except CorruptError as error:
            self._report.violation(place, error.reason, error.position)
            return
        if checkpoints.encode_properties(said) != content or said.get("version") != "1":
            self._report.violation(place, "is not written as it always is")
        node_id = None if around.node_id is None else str(around.node_id)
        for key, right in (("cluster.id", around.cluster_id), ("node.id", node_id)):
            if right is not None and said.get(key) != right:
                self._report.violation(place, f"says {key} {said.get(key)!r} instead of {right!r}")
        self._check_directory_id(place, said.get("directory.id", ""))

    def _check_directory_id(self, place: str, text: str) -> None:
        known = self._around.directory_ids
        try:
            directory_id = uuid_from_text(text)
        except ValueError:
            self._report.violation(place, f"directory.id {text!r} is not one")
            return
        if uuid_text(directory_id) != text:
            self._report.violation(place, f"directory.id {text!r} is not written as it always is")
        elif known is not None and directory_id not in known:
            self._report.violation(place, f"directory.id {text} is not the one that registered")

    def _check_clean_shutdown(self) -> None:
        name = checkpoints.CLEAN_SHUTDOWN
        content = self._directory.read_all(name)
        if self._life is not Life.CLOSED or self._mark is None:
            return
        expected = f'{{"version":0,"brokerEpoch":{self._mark.incarnation}}}'.encode("ascii")
        if content is None:
            self._report.violation(self._place(name), "is missing after a clean stop")
        elif content != expected:
            self._report.violation(self._place(name), "does not name the life that ended")

    # -- the logs

    def logs(self) -> None:
        for name in self._directory.names():
            key = key_of(name)
            if key is None:
                continue
            known = known_of(key, self._life, self._found, self._mark, self._around)
            where = self._directory.directory(name)
            ended = self._ended[key] = verify_log(where, known, self._report)
            if known.closed is not None:
                self._check_closed(name, known, ended)

    def _check_closed(self, name: str, known: Known, ended: Ended | None) -> None:
        """What the mark promises to the next start, which will not look."""
        closed, place = known.closed, self._place(MARK_NAME)
        if closed is None or (ended is not None and not ended.whole):
            return
        if ended is None:
            self._report.violation(place, f"tells of {name}, which has no segment")
            return
        for what, said, found in (
            ("end", closed.end, ended.end),
            ("active segment", closed.active_base, ended.active_base),
            ("active segment's bytes", closed.active_bytes, ended.active_bytes),
        ):
            if said != found:
                self._report.violation(place, f"says {what} {said} of {name}, it is {found}")

    # -- offsets between the files

    def offsets(self) -> None:
        found = self._found
        for name, rows in (
            (checkpoints.RECOVERY_POINTS, found.recovery_points),
            (checkpoints.HIGH_WATERMARKS, found.high_watermarks),
            (checkpoints.LOG_STARTS, found.log_starts),
            (CLEANER_OFFSETS, found.cleaned),
        ):
            self._check_offsets(self._place(name), rows)
        if self._life is Life.CLOSED and self._mark is not None:
            self._check_closed_offsets(self._mark)

    def _check_offsets(self, place: str, rows: Mapping[TopicPartition, int]) -> None:
        told = self._report.violation if self._life is Life.CLOSED else _nobody
        for key, offset in rows.items():
            name = f"{key[0]}-{key[1]}"
            ended = self._ended.get(key)
            if key not in self._ended:
                told(place, f"names {name}, which is not there")
            elif ended is not None and ended.whole and offset > ended.end:
                reason = f"says {offset} of {name}, which ends at {ended.end}"
                if self._is_put_right(place, key, offset):
                    self._report.remark(place, f"{reason}; the next start puts it right")
                else:
                    self._report.violation(place, reason)

    def _is_put_right(self, place: str, key: TopicPartition, offset: int) -> bool:
        """What a start does not believe: a cut by it may be newer than a checkpoint. Nor does it
        miss what was flushed, where all of that is deleted."""
        if place.endswith(HIGH_WATERMARKS):
            return self._life is not Life.CLOSED
        is_point = place.endswith(RECOVERY_POINTS)
        is_deleted = self._found.log_starts.get(key, 0) >= offset
        return self._life is Life.POWER_LOST and (is_deleted or not is_point)

    def _check_closed_offsets(self, mark: Mark) -> None:
        place = self._place(checkpoints.LOG_STARTS)
        for name, closed in mark.logs.items():
            key = key_of(name)
            if key is None or key not in self._ended:
                self._report.violation(self._place(MARK_NAME), f"names {name}: it is not there")
                continue
            said = self._found.log_starts.get(key, 0)
            if said != closed.start:
                self._report.violation(place, f"says {said} of {name}, the mark {closed.start}")
            for checkpoint, rows in (
                (checkpoints.RECOVERY_POINTS, self._found.recovery_points),
                (checkpoints.HIGH_WATERMARKS, self._found.high_watermarks),
            ):
                if key not in rows:
                    self._report.violation(self._place(checkpoint), f"does not name {name}")


def _nobody(_file: str, _reason: str, _position: int | None = None) -> None:
    """A partition that was deleted stays in the checkpoints until they are written again."""
