"""The coordinator's parts and their life: load, take over, serve brokers, end. (shell)"""

import asyncio
import os
import random
import time
from pathlib import Path
from typing import Final, assert_never

from tidelog.coordinator.controller.feed import Peer
from tidelog.coordinator.controller.front import (
    Active,
    Append,
    Effect,
    Event,
    Fence,
    Front,
    GiveUp,
    Happened,
    Heard,
    Ignored,
    LossyElection,
    PeerLost,
    Received,
    RequestFailed,
    SaveSnapshot,
    SendTo,
    TopicGone,
)
from tidelog.coordinator.controller.health import health
from tidelog.coordinator.controller.shard import ControllerShard
from tidelog.coordinator.runtime.journal import Journal, Life, Loaded
from tidelog.coordinator.runtime.router import Router
from tidelog.coordinator.runtime.standing_by import StandingBy
from tidelog.coordinator.runtime.tail import Tail
from tidelog.coordinator.runtime.watch import Watch
from tidelog.coordinator.runtime.writer import Writer
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.ids import NO_OFFSET, Offset, Uuid, uuid_text
from tidelog.kernel.instant import Instant
from tidelog.kernel.launch import (
    COORDINATOR_LEDGER,
    CoordinatorLaunch,
    board_name,
    coordinator_directory,
    coordinator_endpoint,
    supervisor_socket,
)
from tidelog.kernel.limits import HEARTBEAT_MS
from tidelog.node.few_lines import FewLines
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Role, SlotState, Word
from tidelog.node.log.directory_names import key_of
from tidelog.node.metadata.digest import digest
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.runtime.alarm import Alarm
from tidelog.node.runtime.disk import DirectoryLock, DiskDirectory, open_disk
from tidelog.node.runtime.lives import started
from tidelog.node.runtime.open_ledger import open_ledger
from tidelog.node.runtime.process import (
    ORPHANS_END_WITHIN_S,
    EventLog,
    cannot_use_files,
    crash_by_bugs,
    end_orphaned_run,
    is_orphaned,
    on_stop_signal,
    report_failed,
    report_ready,
    report_standby,
    settle_collector,
)
from tidelog.node.runtime.recorder import Recorder
from tidelog.node.runtime.shard_host import AppendFailed, LogAppended, LogCommitted, Tick
from tidelog.wire.control import encode

_HEARTBEAT_S: Final = HEARTBEAT_MS / 1000
_COUNT_TICKS: Final = 5
_OPEN_FILES_MAX: Final = 64
_EXIT_FAILED: Final = 1


class CoordinatorProcess:
    """Everything the coordinator's process holds, and its event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, launch: CoordinatorLaunch, log: EventLog
    ) -> None:
        self.exit_code = 0
        self._loop = loop
        self._launch = launch
        self._log = log
        self._ready = False
        self._ending = False
        self._ticks = 0
        self._counted = NO_OFFSET
        self._board = Board.open(board_name(launch.run_id))
        self._slot = self._board.writer(launch.board_slot)
        self._standing_by: StandingBy | None = None
        self._followed = False
        self._lock: DirectoryLock | None = None
        self._writer: Writer | None = None
        self._known = MetadataImage()
        self._faults = FewLines()
        self._slot.begin(
            role=Role.STANDBY,
            process_id=launch.seat,
            pid=os.getpid(),
            incarnation=launch.incarnation,
            started=started(os.getpid()),
        )
        ring = self._board.ring(launch.board_slot)
        self._recorder = Recorder(ring, log, launch.incarnation, self._topic_name)

    def start(self) -> None:
        """Lead, or stand by for whoever does; CannotStartError where that must not be done."""
        launch, loop = self._launch, self._loop
        crash_by_bugs(loop, self._log, self._slot.crashed)
        on_stop_signal(loop, self.end)
        top = open_disk(coordinator_directory(launch.data_dir), open_files_max=_OPEN_FILES_MAX)
        self._top = top
        life = Life(launch.boot_id, launch.disk_generation, launch.incarnation)
        self._journal = Journal(top, life)
        if not launch.standby:
            try:
                self._lock = DirectoryLock(top)
            except CannotStartError:
                if launch.seats == 1:
                    raise  # else a standby was faster
        if self._lock is None:
            self._stand_by(top)
        else:
            self._lead(None)
            self._tick()

    def _stand_by(self, top: DiskDirectory) -> None:
        self._followed = True
        self._standing_by = StandingBy(
            self._loop,
            top,
            self._journal.tail(),
            on_locked=self._on_locked,
            on_failed=self._on_files_failed,
            log=self._log,
        )
        self._standing_by.begin()
        self._slot.words[Word.STATE] = SlotState.RUNNING
        self._slot.publish()
        report_standby(self._launch.ready_fd)
        self._tick()

    def _on_locked(self, lock: DirectoryLock) -> None:
        """Whoever led is dead, with all its threads."""
        self._lock = lock
        standing_by, self._standing_by = self._standing_by, None
        assert standing_by is not None
        if self._ending or is_orphaned(self._launch):
            self._stop()
            return
        self._log.info("took_the_lock", offset=standing_by.tail.image.offset)
        try:
            self._lead(standing_by.tail)
        except (CannotStartError, CorruptError) as error:
            self._fail(str(error))
        except OSError as error:
            self._on_files_failed(error)

    def _on_files_failed(self, error: OSError) -> None:
        self._fail(cannot_use_files(self._launch.data_dir, error))

    def _lead(self, tail: Tail | None) -> None:
        """Load the log, or what the tail lacks of it, and take over."""
        launch = self._launch
        self._slot.words[Word.ROLE] = Role.COORDINATOR
        self._slot.words[Word.STATE] = SlotState.STARTING
        self._slot.publish()
        # Not before: of those that stand by, none writes.
        self._top.record(open_ledger(launch, COORDINATOR_LEDGER, [self._top.path], self._log))
        loaded = self._journal.load(tail)
        self._tell(loaded)
        self._known = loaded.feed.image
        if loaded.image.offset == NO_OFFSET:
            _refuse_forgotten_data(launch.data_dir)
        self._settings = ControllerSettings.of(launch.settings)
        shard = ControllerShard(self._settings, random.SystemRandom(), loaded.image)
        self._front = Front(
            shard,
            loaded.feed,
            launch.incarnation,
            snapshot_offset=loaded.snapshot_offset,
            settlements=loaded.settlements,
        )
        self._alarm = Alarm(self._loop, self._on_alarm)
        self._writer = Writer(
            self._loop, self._journal, on_written=self._on_written, on_failed=self._on_write_failed
        )
        now = Instant(time.monotonic_ns())
        self._perform(self._front.start(now, cluster_id=launch.cluster_id, run_id=launch.run_id))

    def end(self) -> None:
        """Finish what is being written, then stop the loop."""
        if self._ending:
            return
        self._ending = True
        self._slot.words[Word.STATE] = SlotState.STOPPING
        self._slot.publish()
        if self._ready:
            self._watch.close()
            self._router.close()
        if self._writer is not None:
            self._writer.close()
        elif self._lock is None and is_orphaned(self._launch):
            # Whoever led may be dead, too, and somebody has to clean up.
            self._loop.call_later(ORPHANS_END_WITHIN_S, self._stop)
            return
        self._stop()

    def _stop(self) -> None:
        self._ending = True
        self._recorder.close()
        self._loop.stop()

    def close(self) -> None:
        """After the loop: say that the end was clean, and be the last of an orphaned run."""
        if self._writer is not None and self.exit_code == 0:
            self._journal.close()
            self._tell_image("controller", self._front.decided)
            self._tell_image("feed", self._front.feed.image)
        elif self._standing_by is not None:
            self._tell_image("standby", self._standing_by.tail.image)
        if self._lock is not None:
            self._lock.release()
            end_orphaned_run(self._launch, self._board)

    def _tell_image(self, holder: str, image: MetadataImage) -> None:
        self._log.info("image", holder=holder, offset=image.offset, digest=digest(image))

    def _step(self, event: Event) -> None:
        if not self._ending:
            now = Instant(time.monotonic_ns())
            self._front.wall_offset_ns = time.time_ns() - now
            self._perform(self._front.step(now, event))

    def _perform(self, effects: list[Effect]) -> None:
        # Others may act on what is sent before it is recorded: it happened before that.
        began = time.time_ns()
        for effect in effects:
            self._do(effect, began)
        deadline = self._front.deadline()
        if deadline is not None:
            self._alarm.set(deadline)

    def _do(self, effect: Effect, began: int) -> None:
        match effect:
            case SendTo(peer, message):
                self._router.send(peer, encode(message))
            case Fence(broker, epoch):
                self._board.fences.fence(broker, epoch)
            case Happened(what):
                self._recorder.happened(*what, wall_ns=began)
            case Append():
                assert self._writer is not None
                self._writer.append(effect, self._front.epoch)
            case SaveSnapshot(offset=offset):
                self._log.info("snapshot_due", offset=offset)
                assert self._writer is not None
                self._writer.save(effect)
            case Ignored() | RequestFailed() | LossyElection() | TopicGone():
                self._note(effect)
            case Active(epoch):
                self._activated(epoch)
            case GiveUp(reason):
                self._fail(reason)
            case _:
                assert_never(effect)

    def _note(self, effect: Ignored | RequestFailed | LossyElection | TopicGone) -> None:
        if isinstance(effect, RequestFailed):
            if self._faults.may_say(time.monotonic_ns() // 1_000_000):
                self._log.error("request_failed", reason=effect.reason)
            return
        if isinstance(effect, Ignored):
            self._log.info("message_ignored", peer=effect.peer, reason=effect.reason)
            return
        if isinstance(effect, TopicGone):
            self._log.info(
                "topic_deleted",
                topic=effect.topic,
                id=uuid_text(effect.id),
                partitions=effect.partitions,
                deleted_later_by=list(effect.later),
            )
            return
        self._log.error(
            "lossy_election",
            partition=f"{effect.topic}-{effect.partition}",
            leader=effect.leader,
            epoch=effect.leader_epoch,
            records_lost_at_least=effect.lost.records,
            lost_from=effect.lost.start,
            lost_at_most=effect.lost.bound,
            reason="no replica that surely has every acknowledged record was there",
        )

    def _activated(self, epoch: int) -> None:
        """Our epoch is on disk: no earlier controller's word counts any more."""
        launch = self._launch
        self._router = Router(
            self._loop,
            coordinator_endpoint(launch.runtime_dir),
            on_frame=self._on_frame,
            on_lost=lambda peer: self._step(PeerLost(peer)),
        )
        self._watch = Watch(
            self._loop,
            supervisor_socket(launch.runtime_dir),
            lambda request: self._step(Heard(request)),
            self._log,
        )
        self._ready = True
        self._watch.open()
        settle_collector(collect=not self._followed)
        self._slot.words[Word.STATE] = SlotState.RUNNING
        self._publish()
        report_ready(launch.ready_fd)
        self._log.info("active", epoch=epoch, offset=self._front.feed.image.offset)

    def _on_frame(self, peer: Peer, frame: bytes) -> None:
        self._step(Received(peer, frame))

    def _on_written(self, batches: list[Append]) -> None:
        for batch in batches:
            self._step(LogAppended(batch.ticket, Offset(batch.base + len(batch.records))))
        last = batches[-1]
        self._step(LogCommitted(Offset(last.base + len(last.records))))

    def _on_write_failed(self, error: OSError) -> None:
        self._log.error("write_failed", reason=str(error))
        self._step(AppendFailed(str(error)))

    def _on_alarm(self, _now: Instant) -> Instant | None:
        self._step(Tick())
        return self._front.deadline()

    def _fail(self, reason: str) -> None:
        """End with a fault: the next life starts from what is on disk."""
        self._log.error("gave_up", reason=reason)
        if not self._ready:
            report_failed(self._launch.ready_fd, reason)
        self.exit_code = _EXIT_FAILED
        self.end()

    def _tell(self, loaded: Loaded) -> None:
        image = loaded.image
        self._log.info(
            "loaded",
            offset=image.offset,
            snapshot_offset=loaded.snapshot_offset,
            last_stop=loaded.last_stop.value,
            topics=len(image.topics),
        )
        for reason in loaded.damaged_snapshots:
            self._log.error("snapshot_damaged", reason=reason)
        if loaded.cut is not None:
            self._log.warning("log_cut", offset=loaded.cut.offset, size_bytes=loaded.cut.bytes_cut)

    def _tick(self) -> None:
        """Ten times a second: show that the loop turns."""
        if self._ending:
            return
        self._loop.call_later(_HEARTBEAT_S, self._tick)
        self._slot.heartbeat(Instant(time.monotonic_ns()))
        self._recorder.turn()
        if self._standing_by is not None:
            self._standing_by.turn()
        self._ticks += 1
        if self._ready and self._ticks % _COUNT_TICKS == 0:
            self._publish()

    def _topic_name(self, topic: Uuid) -> str | None:
        by = self._standing_by
        known = (self._known if by is None else by.tail.image).topics.get(topic)
        return None if known is None else known.name

    def _publish(self) -> None:
        """What the board shows; partitions are counted only where something changed."""
        image, words = self._front.feed.image, self._slot.words
        if image.offset != self._counted:
            self._counted = image.offset
            found = health(image, self._settings.rules(image))
            words[Word.OFFLINE] = found.offline
            words[Word.UNDER_REPLICATED] = found.under_replicated
            words[Word.UNDER_MIN_ISR] = found.under_min_isr
        words[Word.CONTROLLER_EPOCH] = image.controller_epoch
        words[Word.METADATA_OFFSET] = image.offset
        words[Word.TOPICS] = len(image.topics)
        words[Word.PARTITIONS] = image.partitions_count
        self._slot.publish()


def _refuse_forgotten_data(data_dir: str) -> None:
    """Brokers delete partitions that the metadata does not know: an empty one must be the first."""
    for place in sorted(Path(data_dir).glob("broker-*/log*/*-*")):
        if key_of(place.name) is not None:
            raise CannotStartError(
                f"the metadata log in {coordinator_directory(data_dir)} is gone, but {place} holds "
                "data: restore the log from a copy, or start with another --data"
            )
