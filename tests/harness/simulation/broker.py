"""One life of one broker in a simulated cluster: every machine of the process, and no process."""

from collections.abc import Callable
from random import Random

from harness.disks.memory_disk import MemoryDisk, MemoryVolume
from harness.logs.batches import NOW_MS
from harness.machines.controllers import CLUSTER
from harness.simulation.alarm import SimulatedAlarm
from harness.simulation.rings import MemoryRings, Shelf
from harness.simulation.room import SimulatedRoom
from harness.simulation.storage import Loop, SimulatedStorage, lives_on
from harness.simulation.transactions import SimulatedTransactions
from harness.simulation.world import World
from tidelog.kernel.ids import BrokerId, Incarnation, Offset, ProducerId, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import ALTER_ISR_TIMEOUT_MS, FORWARD_TIMEOUT_MS
from tidelog.kernel.steps import at_once
from tidelog.node.api.broker import Broker
from tidelog.node.api.dispatch import Dispatcher, routes
from tidelog.node.api.fetch_sessions import FetchSessions
from tidelog.node.api.producer_ids import ProducerIds
from tidelog.node.broker_settings import BrokerSettings
from tidelog.node.image_steps import ImageSteps, Parts
from tidelog.node.ipc.layout import Fences
from tidelog.node.ipc.standing import Standing
from tidelog.node.log_settings import log_settings
from tidelog.node.metadata import link
from tidelog.node.metadata.image import Changes, MetadataImage
from tidelog.node.metadata.link import Link, Me
from tidelog.node.net.client import Client
from tidelog.node.replica.hosting import Hosting
from tidelog.node.replica.log_ends import log_ends, stop_kind
from tidelog.node.replica.replicas import Replicas
from tidelog.node.replica.replication import Replication, Surroundings
from tidelog.node.replica.waiting import Waiting
from tidelog.wire.control import Client as ForwardedClient
from tidelog.wire.control import encode
from tidelog.wire.errors import ErrorCode, WireError

TICK_MS = 100
CHECKPOINT_TICKS, TEND_TICKS = 50, 10
DRAIN_MS, DRAIN_LOOK_MS, LEAVE_MS = 200, 5, 300


class Life:
    """From its start to its death. `turn` is the only way in."""

    def __init__(
        self,
        world: World,
        me: BrokerId,
        incarnation: Incarnation,
        disk: MemoryDisk,
        *,
        fences: Fences,
        shelf: Shelf,
        disk_generation: int = 0,
        directories: int = 1,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.world = world
        self.me = me
        self.incarnation = incarnation
        self.alive = True
        self.paused = False
        self.serving = False
        self.stopping = False
        self.is_closed = False
        """By a clean stop, whose last act it is to flush and to write its checkpoints."""
        self.connection = 0
        self.asleep: list[Callable[[], None]] = []
        """What came due while it stood still."""
        self.clients: dict[Client, Callable[[], None]] = {}
        """Connections, and what to call when one ends."""
        self.troubles: list[tuple[TopicPartition, str]] = []
        self.suspected: list[link.Suspected] = []
        self._ticks = 0
        self._due_at: Instant | None = None
        self._link_at: Instant | None = None
        self._calls: dict[int, Callable[[link.Result], None]] = {}
        self._last_call = 0
        self.standing = Standing(fences, me, self._on_lost)
        self.waiting = Waiting(SimulatedAlarm(self, self._on_alarm).set)
        self.replicas = Replicas()
        self.configs = BrokerSettings(me, settings or {})
        self.storage = self._make_storage(disk, disk_generation, directories)
        self.logs = self.storage.logs
        self.storage.open(log_settings({}, self.configs.given))
        self.machine = self._make_machine(shelf)
        self.room = SimulatedRoom(self)
        self.hosting = Hosting(
            me=me,
            replicas=self.replicas,
            roles=self.machine,
            logs=self.logs,
            broker_settings=self.configs.given,
            on_trouble=lambda key, reason: self.troubles.append((key, reason)),
        )
        self.steps = self._make_steps()
        self.link = self._make_link()
        self.broker = self._make_broker()
        self.broker.groups.alarm = SimulatedAlarm(self, self.broker.groups.ring).set
        self.transactions = SimulatedTransactions(self)
        self.dispatcher = Dispatcher(self.broker, routes())

    def _make_storage(
        self, disk: MemoryDisk, disk_generation: int, directories: int
    ) -> SimulatedStorage:
        return SimulatedStorage(
            disk,
            self.me,
            self.incarnation,
            disk_generation=disk_generation,
            directories=directories,
            on_lost=self._on_directory_lost,
            loop=Loop(
                lambda: self.world.now,
                lambda when, action: self.world.later(self, when, action),
                self._on_flushed,
            ),
        )

    def _make_link(self) -> Link:
        stopped, me = stop_kind(self.logs), self.me
        kept = self.logs.kept()
        said = Me(CLUSTER, me, self.incarnation, "127.0.0.1", 9092 + me, stopped=stopped, kept=kept)
        return Link(said)

    def _make_machine(self, shelf: Shelf) -> Replication:
        return Replication(
            Surroundings(
                me=self.me,
                incarnation=self.incarnation,
                replicas=self.replicas,
                waiting=self.waiting,
                rings=MemoryRings(shelf, self.me, self.incarnation),
                wall_ms=lambda now: NOW_MS + now // 1_000_000,
                lag_max_ms=lambda: int(self.configs.values["replica.lag.time.max.ms"]),
                note=lambda *what: self.world.noted(self, *what),
                on_storage_failure=lambda one, why: self._on_storage_failure(one.key, why),
                wake=lambda: None,
                full_at=self.world.full_at.__getitem__,
            )
        )

    def _make_broker(self) -> Broker:
        return Broker(
            me=self.me,
            settings=self.configs.values,
            configs=self.configs,
            image=self.link.image,
            replicas=self.replicas,
            replication=self.machine,
            waiting=self.waiting,
            sessions=FetchSessions(10, Random(1)),
            link=self,
            producer_ids=ProducerIds(self.allocate_producer_ids),
            storage=MemoryVolume(),
            aside=lambda work, done: done(self.world.now, at_once(work)),
            later=lambda then: then(self.world.now),
            on_storage_failure=self._on_storage_failure,
            on_fault=self._on_fault,
            new_uuid=lambda: f"{self.me}-{self.incarnation}-{self._new_call()}",
            wall_offset_ns=NOW_MS * 1_000_000,
        )

    @staticmethod
    def _on_fault(reason: str) -> None:
        raise AssertionError(reason)

    def _on_storage_failure(self, key: TopicPartition, failure: Exception) -> None:
        self.troubles.append((key, str(failure)))
        self.replicas.failed(key, failure)
        self.room.failed(key, failure)
        if (give_up := self.storage.doubted(key, failure)) is not None:
            self.world.later(self, self.world.now, give_up)

    def _on_flushed(self, key: TopicPartition) -> None:
        if (replica := self.replicas.get(key)) is not None and replica.by_flush:
            self.machine.vouches(self.world.now, replica)

    def _on_directory_lost(self, keys: list[TopicPartition]) -> None:
        self.hosting.lost(self.world.now, keys)
        self._tend()

    # -- turns

    def turn(self, action: Callable[[], None]) -> None:
        """One turn of the loop: what it gathered goes out at its end."""
        if self.alive and self.paused:
            self.asleep.append(lambda: self.turn(action))
        if not self.alive or self.paused or not lives_on(self, action):
            return
        for peer, parts in self.machine.take_sends():
            if not self.world.push(self, peer, [bytes(part) for part in parts]):
                self.machine.send_failed(self.world.now, peer)
        self._propose()
        self._set_timers()
        self.world.turned(self)

    def start(self) -> None:
        self.turn(self._tick)

    def resume(self) -> None:
        self.paused = False
        asleep, self.asleep = self.asleep, []
        for action in asleep:
            action()

    def received(self, parts: list[bytes]) -> None:
        """From another broker."""

        def take() -> None:
            try:
                self.machine.received(self.world.now, parts)
            except WireError as error:
                raise AssertionError(f"a broker said what is no message: {error}") from error

        self.turn(take)

    def begin(self, client: Client, frame: bytes, on_end: Callable[[], None]) -> None:
        """A client's request; `on_end` where the connection ends instead."""
        self.clients[client] = on_end  # also while it stands still: the kernel takes connections

        def take() -> None:
            if not self.serving or self.standing.is_lost():
                self.end_connections()
            elif client in self.clients:
                self.dispatcher.begin(client, memoryview(bytearray(frame)), self.world.now)
                session = client.session
                if session._ready or (session._slots and session._slots[0].pieces is not None):
                    client.answered()

        self.turn(take)

    def answer_leaves(self, client: Client) -> bool:
        """Whether an answer gets to its client: a fenced broker says nothing."""
        return (
            self.alive
            and self.clients.pop(client, None) is not None
            and (not self.standing.is_lost())
        )

    def end_connections(self) -> None:
        clients, self.clients = self.clients, {}
        for client, on_end in clients.items():
            client.session.abandon()
            on_end()

    def _tick(self) -> None:
        self.world.later(self, Instant(self.world.now + ms(TICK_MS)), self._tick)
        self.standing.is_lost()
        self.machine.tick(self.world.now)
        self.room.turn()
        self._ticks += 1
        if self._ticks % CHECKPOINT_TICKS == 0:
            self.checkpoint()
        if self._ticks % TEND_TICKS == 0:
            self._tend()
            self.hosting.settle_policies(self.world.now, self.link.image)
            self.storage.write_kept()

    def flush(self) -> None:
        """Everything is on stable storage, as after a round of the flusher."""
        lives_on(self, lambda: self.storage.flush(self.high_watermarks()))

    def checkpoint(self) -> None:
        lives_on(self, lambda: self.storage.checkpoint(self.high_watermarks()))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        return {replica.key: replica.high_watermark for replica in self.replicas}

    def _set_timers(self) -> None:
        due, wanted = self.machine.due, self.link.deadline()
        if due is not None and due != self._due_at:
            self._due_at = due
            self.world.later(self, due, lambda: self.machine.tell(self.world.now))
        if wanted is not None and wanted != self._link_at:
            self._link_at = wanted
            self.world.later(self, wanted, self._link_tick)

    def _link_tick(self) -> None:
        self._link_at = None
        if (deadline := self.link.deadline()) is not None and deadline <= self.world.now:
            self.link_step(link.Tick())

    def _on_alarm(self, now: Instant) -> Instant | None:
        self.standing.is_lost()
        self.waiting.expire(now)
        return self.waiting.deadline()

    # -- the coordinator

    def link_step(self, event: link.Event) -> None:
        for effect in self.link.step(self.world.now, event):
            match effect:
                case link.Send(message):
                    self.world.to_coordinator(self, encode(message))
                case link.Finished(call, result):
                    self._calls.pop(call)(result)
                case link.ImageChanged(changes):
                    self._on_image_changed(self.link.image, changes)
                case link.Joined(epoch):
                    self._on_registered(epoch)
                case link.Fenced():
                    assert self.standing.is_lost(), "the metadata says so, the fence word does not"
                case link.EndsWanted(places):
                    waters = self.logs.checkpointed_high_watermark
                    self.link_step(link.EndsTold(log_ends(places, self.replicas, waters)))
                case link.Suspected():
                    self.suspected.append(effect)
                case link.TurnedAway(code, detail):
                    raise AssertionError((code, detail))

    def _ask(self, asked: link.Asked, done: Callable[[link.Result], None]) -> None:
        self._calls[asked.call] = done
        self.link_step(asked)

    def _new_call(self) -> int:
        self._last_call += 1
        return self._last_call

    def forward(
        self,
        api_key: int,
        frame: bytes,
        client_address: str,
        deadline: Instant,
        done: Callable[[bytes | ErrorCode], None],
    ) -> None:
        def finished(result: link.Result) -> None:
            assert isinstance(result, bytes | ErrorCode), api_key
            done(result)

        client = ForwardedClient("PLAINTEXT", "User:ANONYMOUS", client_address)
        self._ask(link.ForwardAsked(self._new_call(), client, frame, deadline), finished)

    def allocate_producer_ids(
        self, done: Callable[[tuple[ProducerId, int] | ErrorCode], None]
    ) -> None:
        def finished(result: link.Result) -> None:
            assert isinstance(result, link.IdBlock | ErrorCode)
            done((result.first, result.count) if isinstance(result, link.IdBlock) else result)

        deadline = Instant(self.world.now + ms(FORWARD_TIMEOUT_MS))
        self._ask(link.IdsAsked(self._new_call(), deadline), finished)

    def _propose(self) -> None:
        changes = tuple(self.machine.take_proposals())
        if not changes:
            return

        def finished(result: link.Result) -> None:
            assert isinstance(result, tuple | ErrorCode)
            self.machine.proposed(self.world.now, changes, result)

        deadline = Instant(self.world.now + ms(ALTER_ISR_TIMEOUT_MS))
        self._ask(link.IsrAsked(self._new_call(), changes, deadline), finished)

    def leave(self, done: Callable[[], None]) -> None:
        """Before a clean stop: no more records, and what is here goes to the others first."""
        self.stopping = self.replicas.retiring = True
        self._drain(Instant(self.world.now + ms(DRAIN_MS)), done)

    def _drain(self, until: Instant, done: Callable[[], None]) -> None:
        if self.machine.is_level() or self.world.now >= until:
            deadline = Instant(self.world.now + ms(LEAVE_MS))
            self._ask(link.LeaveAsked(self._new_call(), deadline), lambda _: done())
        else:
            again = Instant(self.world.now + ms(DRAIN_LOOK_MS))
            self.world.later(self, again, lambda: self._drain(until, done))

    def close_clean(self) -> None:
        self.machine.close()
        self.storage.close_clean(self.high_watermarks())
        self.is_closed = True

    def _on_image_changed(self, image: MetadataImage, changes: Changes) -> None:
        self.steps.take(self.world.now, image, changes)

    def _make_steps(self) -> ImageSteps:
        """As the process makes them; there are no neighbours to look at."""
        return ImageSteps(
            Parts(
                hosting=self.hosting,
                logs=self.logs,
                is_lost=self.standing.is_lost,
                follow_settings=self._follow_settings,
                on_swept=lambda _gone: None,
                on_disk_failed=_raise,
                look_at_storage=self.storage.look,
                others=(lambda now, image, _changes: self.machine.image_changed(now, image),),
                after=(
                    lambda now, _image, changes: self.broker.groups.image_changed(now, changes),
                    lambda now, _image, _changes: self.transactions.service.image_changed(now),
                    lambda now, _image, changes: self.broker.brokers_changed(now, changes.brokers),
                ),
                is_serving=lambda: self.serving,
                tell_damage=lambda logs: self.link_step(link.DamageTold(logs)),
                note_heard=self._note_heard,
            )
        )

    def _follow_settings(self, image: MetadataImage) -> None:
        self.configs.follow(image)

    def _tend(self) -> None:
        self.steps.tend(self.world.now, self.link.image)

    def _note_heard(self) -> None:
        self.storage.heard(of_all=self.hosting.has_told_all(self.link.image))

    def _on_registered(self, epoch: Offset) -> None:
        self.standing.registered(epoch)
        self._note_heard()
        self.machine.registered(self.world.now, epoch)
        self.transactions.service.registered(self.world.now)
        self.serving = not self.stopping

    def _on_lost(self, _epoch: Offset) -> None:
        self.machine.fenced(self.world.now)
        self.broker.groups.image_changed(self.world.now)
        self.transactions.service.lost(self.world.now)
        self.serving = False
        self.end_connections()


def _raise(error: OSError) -> None:
    raise error
