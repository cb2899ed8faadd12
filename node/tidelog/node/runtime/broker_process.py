"""One broker's parts and their life: start, heartbeat, checkpoints, clean stop. A shell."""

import asyncio
import os
import random
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from tidelog.kernel import limits
from tidelog.kernel.ids import ZERO_UUID, Offset, TopicPartition, Uuid
from tidelog.kernel.instant import Instant
from tidelog.kernel.launch import (
    BrokerLaunch,
    board_name,
    broker_directories,
    broker_ledger,
    coordinator_endpoint,
)
from tidelog.node.api.broker import Broker
from tidelog.node.api.dispatch import Dispatcher, routes
from tidelog.node.api.fetch_sessions import FetchSessions
from tidelog.node.api.producer_ids import ProducerIds
from tidelog.node.api.trailing import Trailing
from tidelog.node.broker_settings import BrokerSettings
from tidelog.node.few_lines import FewLines
from tidelog.node.image_steps import ImageSteps, Parts
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.coordinator_link import CoordinatorLink, Hooks
from tidelog.node.ipc.events import Kind
from tidelog.node.ipc.layout import Role, SlotState, Word, slot_of
from tidelog.node.ipc.standing import Standing
from tidelog.node.log.contracts import LogName
from tidelog.node.log.failed_passes import Failure
from tidelog.node.log.ownership import Owner
from tidelog.node.log_settings import log_settings
from tidelog.node.metadata.digest import digest
from tidelog.node.metadata.image import Changes, MetadataImage
from tidelog.node.metadata.link import Me
from tidelog.node.net.connection import NetworkParts, NetworkStats
from tidelog.node.net.listener import Listener, ListenerLimits
from tidelog.node.replica.hosting import Hosting
from tidelog.node.replica.log_ends import log_ends, stop_kind
from tidelog.node.replica.replicas import Replicas
from tidelog.node.replica.room import Room
from tidelog.node.replica.waiting import Waiting
from tidelog.node.runtime.alarm import Alarm
from tidelog.node.runtime.aside import Aside
from tidelog.node.runtime.cold_reads import ColdReads
from tidelog.node.runtime.descriptors import share_of_this_process
from tidelog.node.runtime.disk import open_disks
from tidelog.node.runtime.disk_faults import DiskFaults
from tidelog.node.runtime.lives import started
from tidelog.node.runtime.neighbours import Neighbours
from tidelog.node.runtime.open_ledger import open_ledger
from tidelog.node.runtime.process import (
    EventLog,
    crash_by_bugs,
    on_stop_signal,
    report_failed,
    report_ready,
    settle_collector,
)
from tidelog.node.runtime.recorder import Recorder
from tidelog.node.runtime.replicator import Replicator, ReplicatorParts
from tidelog.node.runtime.room_keeper import RoomKeeper
from tidelog.node.runtime.storage import Storage, StorageParts
from tidelog.node.runtime.stories import Stories
from tidelog.node.runtime.transactor import Transactor
from tidelog.node.setting_rows import LONG_MAX
from tidelog.wire.errors import ErrorCode

_HEARTBEAT_S: Final = limits.HEARTBEAT_MS / 1000
_CHECKPOINT_TICKS: Final = 50
_MILLISECOND_NS: Final = 1_000_000
_HOUSEKEEPING_TICKS: Final = 700
_EXIT_DISK: Final = 74
_NAMED_MAX: Final = 10
_LEAVE_WAIT_MS: Final = 300


class BrokerProcess:
    """Everything one broker process holds, and its event loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, launch: BrokerLaunch, log: EventLog
    ) -> None:
        self.exit_code = 0
        self._loop = loop
        self._launch = launch
        self._log = log
        self._stopping = False
        self._serving = False
        self._ticks = 0
        self._led = 0
        self._stats = NetworkStats()
        self._refusals = FewLines()
        self._request_failures = FewLines()
        self._storage_failures = FewLines()
        self._board = Board.open(board_name(launch.run_id))
        self._slot = self._board.writer(launch.board_slot)
        self._slot.begin(
            role=Role.BROKER,
            process_id=launch.broker_id,
            pid=os.getpid(),
            incarnation=launch.incarnation,
            started=started(os.getpid()),
        )
        ring = self._board.ring(launch.board_slot)
        self._recorder = Recorder(ring, log, launch.incarnation, self._topic_name)
        self._stories = Stories(loop, log, launch.incarnation)

    def start(self) -> None:
        """Open the log directory, find the coordinator; clients are let in once it has answered."""
        launch, loop = self._launch, self._loop
        crash_by_bugs(loop, self._log)
        on_stop_signal(loop, self._on_stop_asked)
        self._settings = BrokerSettings(launch.broker_id, {**launch.settings, **_placed(launch)})
        settings = self._settings.values
        self._share = share_of_this_process(settings["max.connections"])
        self._neighbours = Neighbours(self._board, launch.broker_id)
        self._standing = Standing(self._board.fences, launch.broker_id, self._on_lost)
        self._alarm = Alarm(loop, self._on_alarm)
        self._waiting = Waiting(self._alarm.set)
        self._replicas = Replicas()
        self._room = self._make_room_keeper()
        self._replicator = self._make_replicator()
        self._open_logs()
        self._link = self._make_link(settings["broker.rack"] or None)
        self._broker = Broker(
            me=launch.broker_id,
            settings=settings,
            configs=self._settings,
            image=self._link.image,
            replicas=self._replicas,
            replication=self._replicator.machine,
            waiting=self._waiting,
            sessions=FetchSessions(
                settings["max.incremental.fetch.session.cache.slots"],
                random.Random(),  # noqa: S311 -- no secret hangs on session numbers
            ),
            link=self._link,
            producer_ids=ProducerIds(self._link.allocate_producer_ids),
            storage=self._storage,
            aside=Aside(loop),
            later=lambda then: _soon(loop, then),
            on_storage_failure=self._on_storage_failure,
            new_uuid=lambda: str(uuid.uuid4()),
            someone_left=self._neighbours.someone_left,
            tell_of_groups=self._stories.tell,
            on_fault=self._on_fault,
        )
        self._group_alarm = Alarm(loop, self._on_group_alarm)
        self._broker.groups.alarm = self._group_alarm.set
        self._transactor = Transactor(loop, launch, self._broker, self._standing.is_lost)
        self._broker.transactions = self._transactor
        self._listener = self._make_listener(settings)
        self._listener.listen(launch.host, launch.port)
        self._tick()
        self._replicator.start(self._link)
        self._transactor.start()
        self._link.start()

    def _make_replicator(self) -> Replicator:
        parts = ReplicatorParts(
            replicas=self._replicas,
            waiting=self._waiting,
            settings=self._settings.values,
            log=self._log,
            links=self._board.links,
            wall_ms=self._wall_ms,
            recorder=self._recorder,
            on_storage_failure=self._on_storage_failure,
            full_at=self._room.full_at,
        )
        return Replicator(self._loop, self._launch, parts)

    def _make_room_keeper(self) -> RoomKeeper:
        room = Room(
            self._replicas,
            lambda key: self._storage.has_space(key),  # noqa: PLW0108 -- it comes later
            self._recorder.note,
        )
        return RoomKeeper(
            room,
            self._board,
            self._slot,
            lambda: self._link.image,
            lambda places: self._link.hand_over(places),  # noqa: PLW0108 -- so does this
        )

    def _wall_ms(self, now: Instant) -> int:
        return self._broker.wall_ms(now)

    def _make_link(self, rack: str | None) -> CoordinatorLink:
        launch = self._launch
        me = Me(
            cluster_id=launch.cluster_id,
            broker=launch.broker_id,
            incarnation=launch.incarnation,
            host=launch.host,
            port=launch.port,
            rack=rack,
            log_dirs=self._logs.directory_ids,
            stopped=stop_kind(self._logs),
            kept=self._logs.kept(),
        )
        hooks = Hooks(
            on_image_changed=self._on_image_changed,
            on_registered=self._on_registered,
            on_fenced=self._on_fenced,
            on_refused=self._on_turned_away,
            on_suspected=self._on_suspected,
            crashed_coordinators=self._board.crashed_coordinators,
            on_ends_wanted=lambda places: log_ends(
                places, self._replicas, self._logs.checkpointed_high_watermark
            ),
        )
        return CoordinatorLink(self._loop, coordinator_endpoint(launch.runtime_dir), me, hooks)

    def _open_logs(self) -> None:
        launch = self._launch
        paths = broker_directories(launch.data_dir, launch.broker_id, launch.settings)
        owner = Owner(
            cluster_id=launch.cluster_id,
            node_id=launch.broker_id,
            boot_id=launch.boot_id,
            disk_generation=launch.disk_generation,
            incarnation=launch.incarnation,
            directory_id=ZERO_UUID,
        )
        parts = StorageParts(
            loop=self._loop,
            replicas=self._replicas,
            settings=self._settings.values,
            log=self._log,
            wall_ms=lambda: self._broker.wall_ms(Instant(time.monotonic_ns())),
            begins_later=lambda key: self._waiting.begins_later(Instant(time.monotonic_ns()), key),
            high_watermarks=self._high_watermarks,
            on_lost=self._on_directory_lost,
            on_last_failed=self._on_disk_failed,
            on_flushed=self._on_flushed,
            on_unreadable=self._on_storage_failure,
            on_compaction=self._on_compaction,
        )
        ledger = open_ledger(launch, broker_ledger(launch.broker_id), paths, self._log)
        self._faults = DiskFaults(self._board, launch.run_id, launch.broker_id, paths)
        disks = open_disks(paths, self._share.files, ledger, self._faults)
        self._storage = Storage(parts, disks, owner)
        self._logs = self._storage.logs
        self._storage.open(log_settings({}, launch.settings))
        self._note_recovery()
        self._hosting = Hosting(
            me=launch.broker_id,
            replicas=self._replicas,
            roles=self._replicator.machine,
            logs=self._logs,
            broker_settings=self._settings.given,
            on_trouble=self._on_trouble,
        )
        self._steps = self._make_steps()

    def _note_recovery(self) -> None:
        for name, size, cut in self._logs.recovered:
            self._log.info("log_recovered", partition=name, bytes_scanned=size, cut=str(cut or ""))
        for key, reason in self._logs.offline.items():
            self._on_trouble(key, str(reason))

    def _make_listener(self, settings: dict[str, Any]) -> Listener:
        self._cold_reads = ColdReads(self._loop, self._faults)
        parts = NetworkParts(
            loop=self._loop,
            dispatcher=Dispatcher(self._broker, routes(), self._on_trailing_bytes),
            stats=self._stats,
            cold_reads=self._cold_reads,
            frame_bytes_max=settings["socket.request.max.bytes"],
            received=self._broker.received,
            log_refused=self._on_refused,
            is_lost=self._standing.is_lost,
        )
        return Listener(parts, self._bounds())

    def _on_image_changed(self, image: MetadataImage, changes: Changes) -> None:
        now = Instant(time.monotonic_ns())
        self._steps.take(now, image, changes)
        self._led = self._replicas.leading()
        self._publish(now)

    def _make_steps(self) -> ImageSteps:
        """Callbacks for what is made later."""
        return ImageSteps(
            Parts(
                hosting=self._hosting,
                logs=self._logs,
                is_lost=self._standing.is_lost,
                follow_settings=self._follow_settings,
                on_swept=self._on_swept,
                on_disk_failed=self._on_disk_failed,
                look_at_storage=self._storage.look,
                others=(
                    lambda _now, image, _changes: self._replicator.image_changed(image),
                    lambda _now, image, changes: self._neighbours.follow(image, changes.brokers),
                ),
                after=(
                    lambda now, _image, changes: self._broker.groups.image_changed(now, changes),
                    lambda _now, _image, _changes: self._transactor.image_changed(),
                    lambda now, _image, changes: self._broker.brokers_changed(now, changes.brokers),
                ),
                is_serving=lambda: self._serving,
                tell_damage=lambda logs: self._link.tell_damage(logs),  # noqa: PLW0108 -- it comes later
                note_heard=self._note_heard,
            )
        )

    def _on_swept(self, gone: Sequence[TopicPartition]) -> None:
        if gone:
            some = [f"{topic}-{partition}" for topic, partition in gone[:_NAMED_MAX]]
            self._log.info("deleted_topics_swept", logs=len(gone), among_them=some)

    def _tend(self, now: Instant) -> None:
        self._steps.tend(now, self._link.image)

    def _on_flushed(self, now: Instant, key: TopicPartition) -> None:
        replica = self._replicas.get(key)
        if replica is not None and replica.by_flush:
            self._replicator.machine.vouches(now, replica)

    def _on_compaction(self, name: LogName, failure: Failure | None) -> None:
        """A log cannot be compacted, or that is over: `tidelog why` tells it."""
        place = name.topic_id, name.partition
        if failure is None:
            self._recorder.record(Kind.COMPACTED_AGAIN, *place)
        else:
            self._recorder.record(Kind.NOT_COMPACTED, *place, failure.cause, failure.segment)

    def _on_directory_lost(self, keys: list[TopicPartition]) -> None:
        """One directory of several is at its end: others lead what lay there."""
        now = Instant(time.monotonic_ns())
        self._hosting.lost(now, keys)
        self._tend(now)
        self._led = self._replicas.leading()
        self._publish(now)

    def _follow_settings(self, image: MetadataImage) -> None:
        changed = self._settings.follow(image)
        if changed:
            self._log.info("settings_changed", names=sorted(changed))
            self._listener.bound(self._bounds())

    def _bounds(self) -> ListenerLimits:
        """As many clients as are allowed, and as there are descriptors for."""
        values = self._settings.values
        received_max = values["queued.max.request.bytes"]
        self._broker.received.bound(received_max if received_max > 0 else LONG_MAX)
        connections_max = min(self._share.connections, values["max.connections"])
        return ListenerLimits(connections_max, values["connections.max.idle.ms"])

    def _on_registered(self, epoch: Offset) -> None:
        self._log.info("registered", epoch=epoch)
        self._standing.registered(epoch)
        self._note_heard()
        self._replicator.registered(epoch)
        self._transactor.registered()
        if not self._serving:
            self._serve()
        elif not self._stopping:
            self._listener.resume()
            self._slot.words[Word.STATE] = SlotState.RUNNING
            self._slot.publish()

    def _note_heard(self) -> None:
        try:
            self._logs.heard(of_all=self._hosting.has_told_all(self._link.image))
        except OSError as error:
            # The next life says once more what this one lost: safe, and it costs it its places.
            self._log.warning("mark_not_written", reason=str(error), advice="free some space")
        self._storage.look()

    def _topic_name(self, topic: Uuid) -> str | None:
        known = self._link.image.topics.get(topic)
        return None if known is None else known.name

    def _on_fenced(self) -> None:
        known = self._launch.broker_id in self._link.image.brokers
        assert self._standing.is_lost() or not known, "its fence word does not say that it is out"
        self._standing.given_up()

    def _on_lost(self, epoch: Offset) -> None:
        """The cluster has given this life up: nobody gets an answer of it any more. The link
        hears of it too, and asks to be taken back."""
        self._replicator.fenced()
        self._broker.groups.image_changed(Instant(time.monotonic_ns()))
        self._transactor.lost()
        self._led = self._replicas.leading()
        self._listener.suspend()
        if self._stopping:
            return  # it has asked for that
        self._log.warning("fenced", epoch=epoch)
        self._recorder.record_broker(Kind.LOST, self._launch.broker_id, epoch)
        self._slot.words[Word.STATE] = SlotState.FENCED
        self._slot.publish()

    def _on_turned_away(self, code: ErrorCode, detail: str) -> None:
        """The coordinator will never have us: say why and end."""
        sentence = f"broker {self._launch.broker_id} may not join: {code.name}: {detail}"
        self._log.error("turned_away", reason=sentence)
        if not self._serving:
            report_failed(self._launch.ready_fd, sentence)
        self.exit_code = 1
        self._loop.stop()

    def _serve(self) -> None:
        """The image is whole and names this broker among the living: let clients in."""
        launch = self._launch
        self._serving = True
        self._listener.accept()
        settle_collector()
        self._slot.words[Word.STATE] = SlotState.RUNNING
        self._publish(Instant(time.monotonic_ns()))
        report_ready(launch.ready_fd)
        self._log.info(
            "serving",
            port=launch.port,
            replicas=len(self._replicas),
            stopped=self._logs.last_stop.value,
        )

    def _tick(self) -> None:
        """Ten times a second: show that the loop turns, keep the clock and the checkpoints."""
        if self._stopping:
            return
        self._loop.call_later(_HEARTBEAT_S, self._tick)
        self._standing.is_lost()
        now = Instant(time.monotonic_ns())
        self._broker.wall_offset_ns = time.time_ns() - now
        self._slot.heartbeat(now)
        self._replicator.tick(now)
        self._room.turn(now)
        self._ticks += 1
        self._recorder.turn()
        if self._serving:
            self._storage.keep_small(compact=self._ticks % 10 == 0)
            self._storage.keep_cache(now)
        if self._ticks % 10 == 0:
            self._publish(now)
            self._tell_left_out(now)
            self._tend(now)
            self._hosting.settle_policies(now, self._link.image)
            self._storage.turn(checkpoint=self._ticks % _CHECKPOINT_TICKS == 0)
        if self._ticks % _HOUSEKEEPING_TICKS == 0:
            self._storage.keep_house()

    def _publish(self, now: Instant) -> None:
        words, stats, counters = self._slot.words, self._stats, self._broker.counters
        words[Word.METADATA_OFFSET] = self._broker.image.offset
        words[Word.LEADERS] = self._led
        words[Word.REPLICAS] = len(self._replicas)
        words[Word.NOT_COMPACTED] = self._storage.not_compacted
        words[Word.CONNECTIONS] = stats.connections
        words[Word.CONNECTIONS_ACCEPTED] = stats.accepted
        words[Word.REQUESTS] = stats.requests
        words[Word.BYTES_IN] = stats.bytes_in
        words[Word.BYTES_OUT] = stats.bytes_out
        words[Word.FRAMES_REFUSED] = stats.refused_frames
        words[Word.PRODUCE_BATCHES] = counters.produced_batches
        words[Word.PRODUCE_BYTES] = counters.produced_bytes
        words[Word.FETCH_REQUESTS] = counters.fetches
        words[Word.FETCH_BYTES] = counters.fetched_bytes
        words[Word.FLUSH_POLICY] = log_settings({}, self._settings.given).flush.code
        words[Word.FLUSHES] = self._storage.flushes
        words[Word.COLD_READS] = self._cold_reads.warmed
        words[Word.DROPPED_BEHIND] = self._cold_reads.dropped
        words[Word.WRITTEN_BACK], words[Word.DROPPED], words[Word.HELD] = self._storage.cache
        words[Word.LAST_FLUSH_AT], words[Word.LAST_FLUSH_NS] = self._storage.last_flush
        self._slot.publish()
        self._slot.heartbeat(now)

    def _high_watermarks(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = ((key, self._replicas.get(key)) for key in keys)
        return {key: replica.high_watermark for key, replica in found if replica is not None}

    def _on_alarm(self, now: Instant) -> Instant | None:
        self._standing.is_lost()
        self._waiting.expire(now)
        return self._waiting.deadline()

    def _on_group_alarm(self, now: Instant) -> Instant | None:
        self._standing.is_lost()
        return self._broker.groups.ring(now)

    def _on_refused(self, address: str, reason: str) -> None:
        if self._refusals.may_say(_now_ms()):
            self._log.info("connection_refused", client=address, reason=reason)

    def _on_fault(self, reason: str) -> None:
        if self._request_failures.may_say(_now_ms()):
            self._log.error("request_failed", reason=reason)

    def _on_suspected(self, api_key: int, client: str, coordinators: int) -> None:
        if self._request_failures.may_say(_now_ms()):
            self._log.error(
                "request_suspected",
                api_key=api_key,
                client=client,
                coordinators=coordinators,
                reason="each coordinator that got this request ended before it had answered",
            )

    def _on_trailing_bytes(self, told: Trailing) -> None:
        self._log.info(
            "request_has_trailing_bytes",
            client=told.client,
            address=told.address,
            request=told.request,
            bytes=told.size,
        )

    def _tell_left_out(self, now: Instant) -> None:
        """What clients caused too often to be logged each time."""
        now_ms = now // _MILLISECOND_NS
        for event, lines in (
            ("connection_refused", self._refusals),
            ("storage_failed", self._storage_failures),
            ("request_failed", self._request_failures),
        ):
            count = lines.left_out(now_ms)
            if count:
                self._log.info("lines_left_out", of=event, count=count)

    def _on_trouble(self, key: TopicPartition, reason: str) -> None:
        self._log.error("partition_offline", partition=f"{key[0]}-{key[1]}", reason=reason)

    def _on_storage_failure(self, key: TopicPartition, failure: Exception) -> None:
        self._replicas.failed(key, failure)
        self._storage.doubt(key, failure)
        self._room.failed(Instant(time.monotonic_ns()), key, failure)
        if self._storage_failures.may_say(_now_ms()):
            self._log.error("storage_failed", partition=f"{key[0]}-{key[1]}", reason=str(failure))

    def _on_disk_failed(self, error: OSError) -> None:
        """The kernel may have dropped what it could not write: nothing here can be trusted now."""
        self._log.error(
            "disk_failed", reason=str(error), advice="mend or replace the disk, then start again"
        )
        os._exit(_EXIT_DISK)

    def _on_stop_asked(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        self._slot.words[Word.STATE] = SlotState.STOPPING
        self._slot.publish()
        self._listener.stop_accepting()
        # What is acknowledged by this leader alone must be with the next one before it leads.
        self._replicator.drain(
            lambda: self._link.leave(self._on_left, wait_ms=_LEAVE_WAIT_MS),
        )

    def _on_left(self, _outcome: ErrorCode) -> None:
        """The coordinator knows: end the connections, close the log so that it is trusted."""
        self._listener.close()
        self._replicator.close()
        self._storage.stop_cleaning()
        supervisor = self._board.read_slot(slot_of(Role.SUPERVISOR))
        sync = supervisor is not None and bool(supervisor[Word.SYNC_AT_STOP])
        self._storage.close(sync=sync, done=self._on_closed)

    def _on_closed(self) -> None:
        image = self._link.image
        self._log.info("image", holder="broker", offset=image.offset, digest=digest(image))
        self._recorder.close()
        self._stories.close()
        self._link.close()
        self._transactor.close()
        self._neighbours.close()
        self._alarm.cancel()
        self._group_alarm.cancel()
        self._loop.stop()


def _now_ms() -> int:
    return time.monotonic_ns() // _MILLISECOND_NS


def _placed(launch: BrokerLaunch) -> dict[str, str]:
    """Settings that Kafka's operators write into a file, and that the supervisor decides here."""
    address = f"PLAINTEXT://{launch.host}:{launch.port}"
    return {
        "advertised.listeners": address,
        "broker.id": str(launch.broker_id),
        "listeners": address,
        "log.dirs": ",".join(
            broker_directories(launch.data_dir, launch.broker_id, launch.settings)
        ),
        "node.id": str(launch.broker_id),
        "process.roles": "broker",
    }


def _soon(loop: asyncio.AbstractEventLoop, then: Callable[[Instant], None]) -> None:
    loop.call_soon(lambda: then(Instant(time.monotonic_ns())))
