"""What `tidelog disk` knows: files, their pages, the durability ledger, the board, the metadata.

All of it is read without asking a broker anything; most is there when the cluster is down.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import posix_ipc
from msgspec import Struct, structs

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.launch import board_name, broker_ledger
from tidelog.node.broker_settings import EVERY_BROKER
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Role, Slot, SlotState, Word, slot_of
from tidelog.node.ipc.ledger_layout import check_header
from tidelog.node.ipc.ledger_memory import ledgers_left, read_ledger, saved_parts
from tidelog.node.log.directory_names import key_of
from tidelog.node.log.flush_policy import word_of
from tidelog.node.log_settings import log_settings
from tidelog.node.origins import Layers
from tidelog.node.runtime.lives import boot_id
from tidelog.node.runtime.page_cache import look as look_at_pages
from tidelog.tools.chaos.sick_disks import sick_in
from tidelog.tools.chaos.survey import Recorded, recorded
from tidelog.tools.disk_view import Broker, Flush, Replica, Segment, first_unstable
from tidelog.tools.durable_end import Allowance, DurableEnd, durable_end
from tidelog.tools.log_files.data_folder import Folder
from tidelog.tools.log_files.kinds import FileKind, kind_of
from tidelog.tools.supervisor import proc
from tidelog.tools.supervisor.folder import is_held, run_in
from tidelog.wire.checkpoints import RECOVERY_POINTS, decode_offsets

_NOTHING = DurableEnd(None, None)


class Wanted(Struct, frozen=True):
    """What is asked for; None: all."""

    broker: int | None = None
    topic: str | None = None
    partition: int | None = None

    def takes(self, place: TopicPartition) -> bool:
        return self.topic in {None, place[0]} and self.partition in {None, place[1]}


class _Asked(Struct, frozen=True):
    """What is looked for, and what may be read for it."""

    wanted: Wanted
    allowance: Allowance


class _File(Struct, frozen=True):
    """A segment as it was seen, before anybody asked what of it is stable."""

    name: str
    inode: int
    size: int


class _Found(Struct, frozen=True):
    """The files of one replica."""

    place: TopicPartition
    top: str
    name: str
    top_inode: int
    inode: int
    files: tuple[_File, ...]

    @property
    def path(self) -> str:
        return f"{self.top}/{self.name}"


def look(folder: Folder, wanted: Wanted) -> list[Broker]:
    """Everything at this moment, file by file: what comes meanwhile is in the next look."""
    run = run_in(folder.path)
    run_id = None if run is None else run.run_id
    ids = [one for one in folder.brokers if wanted.broker in {None, one}]
    live = run_id if is_held(folder.path) else None
    slots = _slots(live, ids)
    asked = _Asked(wanted, Allowance())
    sick = [] if live is None else sick_in(live, str(folder.path))
    return [
        structs.replace(
            _broker(folder, run_id, one, slots.get(one), asked),
            faults=tuple(row.document for row in sick if row.broker == one),
            sick=tuple(row.sentence for row in sick if row.broker == one),
        )
        for one in ids
    ]


def _slots(run_id: str | None, ids: Sequence[int]) -> dict[int, Slot]:
    if run_id is None:
        return {}
    try:
        board = Board.open(board_name(run_id))
    except (posix_ipc.ExistentialError, CorruptError):
        return {}  # the run has just ended
    with board:
        read = {one: board.read_slot(slot_of(Role.BROKER, one)) for one in ids}
    return {one: slot for one, slot in read.items() if slot is not None}


def _broker(
    folder: Folder, run_id: str | None, broker: int, slot: Slot | None, asked: _Asked
) -> Broker:
    # Files first: what the ledger knows by then is at least as much.
    found = sorted(
        (
            one
            for top in folder.brokers[broker]
            for one in _replicas(str(top))
            if asked.wanted.takes(one.place)
        ),
        key=lambda one: one.place,
    )
    ledger = _recorded(str(folder.path), run_id, broker)
    said = None if ledger is None else _Stable(ledger)
    known = _Known(said, _points(folder.brokers[broker]), asked.allowance)
    policies = _Policies(folder, broker)
    replicas = [_replica(one, known, policies.of(one.place[0])) for one in found]
    code = 0 if slot is None else slot[Word.FLUSH_POLICY]
    return Broker(
        broker_id=broker,
        state=_state(slot),
        flush_policy=word_of(code) if code else policies.of(None),
        replicas=tuple(replicas),
        last_flush=_last_flush(slot),
    )


def _state(slot: Slot | None) -> str:
    """As it says, where it lives; the board of a dead one says what it said last."""
    if slot is None or proc.is_gone(slot[Word.PID]):
        return "stopped"
    return SlotState(slot[Word.STATE]).name.lower()


def _last_flush(slot: Slot | None) -> Flush | None:
    if slot is None or not slot[Word.LAST_FLUSH_AT]:
        return None
    return _flush(slot[Word.LAST_FLUSH_AT], slot[Word.LAST_FLUSH_NS])


def _flush(at: int, took_ns: int) -> Flush:
    age_ns = max(time.monotonic_ns() - at, 0)
    return Flush(round(age_ns / 1e6, 1), round(took_ns / 1e6, 3))


class _Policies:
    """The flush policy in force, by topic, on one broker."""

    def __init__(self, folder: Folder, broker: int) -> None:
        self._topics = folder.image.names
        configs, cluster = folder.image.broker_configs, folder.cluster
        static: dict[str, str] = {}
        if cluster is not None:
            static = cluster.settings | cluster.broker_settings.get(str(broker), {})
        layers = Layers(static, configs.get(EVERY_BROKER, {}), configs.get(str(broker), {}))
        self._broker = layers.effective()
        self._known: dict[str | None, str] = {}

    def of(self, topic: str | None) -> str:
        """None: where a topic says nothing."""
        if topic not in self._known:
            view = None if topic is None else self._topics.get(topic)
            own: Mapping[str, str] = {} if view is None else view.configs
            self._known[topic] = log_settings(own, self._broker).flush.word
        return self._known[topic]


# -- files ----------------------------------------------------------------------------------------


def _replicas(top: str) -> Iterator[_Found]:
    try:
        top_inode = os.stat(top).st_ino  # noqa: PTH116 -- thousands of files: paths as texts
        entries = list(os.scandir(top))
    except FileNotFoundError:
        return
    for entry in entries:
        place = key_of(entry.name)
        if place is not None and entry.is_dir(follow_symlinks=False):
            files = tuple(sorted(_segments(entry.path), key=lambda one: one.name))
            yield _Found(place, top, entry.name, top_inode, entry.inode(), files)


def _segments(path: str) -> Iterator[_File]:
    try:
        for entry in os.scandir(path):
            if kind_of(entry.name) is FileKind.SEGMENT:
                yield _File(entry.name, entry.inode(), entry.stat(follow_symlinks=False).st_size)
    except FileNotFoundError:
        return  # the topic, or the segment, is being deleted


def _replica(found: _Found, known: "_Known", policy: str) -> Replica:
    segments = tuple(_segment(found, one, known.said) for one in found.files)
    end = _end(found, segments, known.allowance)
    point = known.points.get((found.top, found.place))
    return Replica(
        topic=found.place[0],
        partition=int(found.place[1]),
        log_dir=found.top,
        flush_policy=policy,
        segments=segments,
        durable_offset=point if end.offset is None else end.offset,
        is_exact=end.offset is not None,
        oldest_at_ms=end.waits_since_ms,
    )


def _segment(found: _Found, file: _File, said: "_Stable | None") -> Segment:
    pages = look_at_pages(f"{found.path}/{file.name}", file.size)
    return Segment(
        file=file.name,
        size=file.size,
        cached=None if pages is None else pages.cached,
        dirty=None if pages is None else pages.dirty,
        stable=None if said is None else said.bytes_of(found, file),
        last_flush=None if said is None else said.flush_of(file),
    )


class _Known(Struct):
    """What replicas of one broker are held against."""

    said: "_Stable | None"
    points: Mapping[tuple[str, TopicPartition], int]
    allowance: Allowance


def _points(tops: Iterable[Path]) -> dict[tuple[str, TopicPartition], int]:
    """Recovery points: up to there all was flushed when they were written, some time ago."""
    found: dict[tuple[str, TopicPartition], int] = {}
    for top in tops:
        file = top / RECOVERY_POINTS
        try:
            points = decode_offsets(file.read_bytes(), place=str(file))
        except (OSError, CorruptError):
            continue  # `log verify` tells
        found.update({(str(top), place): point for place, point in points.items()})
    return found


class _Stable:
    """What is on stable storage, by what the ledger says."""

    def __init__(self, said: Recorded) -> None:
        self._said = said
        self._names = {
            directory: {row.name: row.durable for row in rows}
            for directory, rows in said.names.items()
        }

    def bytes_of(self, found: _Found, file: _File) -> int:
        """They count only where all names on the way to them are on stable storage too."""
        if not (
            self._is_named(found.top_inode, found.name, found.inode)
            and self._is_named(found.inode, file.name, file.inode)
        ):
            return 0
        row = self._said.files.get(file.inode)
        if row is None:
            # What was there before the ledger began was read from the disk.
            return 0 if self._said.is_full else file.size
        return min(row.stable, file.size)

    def flush_of(self, file: _File) -> Flush | None:
        row = self._said.flushed.get(file.inode)
        return None if row is None else _flush(row.at, row.took_ns)

    def _is_named(self, directory: int, name: str, inode: int) -> bool:
        return self._names.get(directory, {}).get(name, inode) == inode


def _end(found: _Found, segments: Sequence[Segment], allowance: Allowance) -> DurableEnd:
    number = first_unstable(segments)
    if number is None:
        return _NOTHING
    one = segments[number]
    try:
        return durable_end(found.path, one.file, one.stable or 0, allowance)
    except OSError:
        return _NOTHING  # it was there a moment ago


# -- the ledger -----------------------------------------------------------------------------------


def _recorded(data: str, run_id: str | None, broker: int) -> Recorded | None:
    """Of this run, or as the last one left it; None where there is no ledger."""
    owner = broker_ledger(broker)
    try:
        if run_id is not None and (parts := read_ledger(run_id, owner)):
            return recorded([parts, *(one for _, one in ledgers_left(run_id, owner))])
        saved = saved_parts(data, owner)
        if not saved:
            return None
        if check_header(saved[0], owner) != boot_id():
            return Recorded()  # all that is there was read from the disk
        return recorded([saved])
    except (CorruptError, posix_ipc.ExistentialError):
        return None
