"""The coordinator of a simulated cluster: its machines, its log's disk, and its deaths."""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from harness.machines.controllers import CLUSTER, check_moved
from harness.simulation.clock import Timeline
from tidelog.coordinator.controller import front
from tidelog.coordinator.controller.feed import Feed
from tidelog.coordinator.controller.front import Front
from tidelog.coordinator.controller.requests import BrokerLost, BrokerStarted, ControllerReply
from tidelog.coordinator.controller.shard import ControllerShard
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import Incarnation, Offset, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.shard import Decision
from tidelog.node.ipc.layout import Fences
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.runtime.shard_host import LogAppended, LogCommitted, Tick
from tidelog.wire.control import ToBroker
from tidelog.wire.metadata_records import MetadataRecord, PartitionChanged, PartitionView

SYNC_MS = (0.2, 2.0)


class SimulatedCoordinator:
    """All its lives; between two of them `front` is None."""

    def __init__(
        self,
        timeline: Timeline,
        rng: Random,
        settings: dict[str, str],
        fences: Fences,
        send: Callable[[bytes, ToBroker], None],
        on_committed: Callable[[MetadataImage], None],
    ) -> None:
        self.front: Front | None = None
        self.records: list[MetadataRecord] = []
        """On its disk."""
        self.lives = 0
        self.lossy: list[front.LossyElection] = []
        """What was said aloud of elections that may lose records."""
        self._timeline = timeline
        self._rng = rng
        self._settings = settings
        self._fences = fences
        self._send = send
        self._on_committed = on_committed
        self._unsynced: deque[front.Append] = deque()
        self._synced_at = timeline.now

    def start(self) -> None:
        assert self.front is None
        self.lives += 1
        decided, committed = self._replayed(), self._replayed()
        settings = ControllerSettings.of(self._settings)
        shard = ControllerShard(settings, Random(self._rng.random()), decided)
        self.front = Front(shard, Feed(committed), Incarnation(self.lives))
        self._perform(self.front.start(self._timeline.now, cluster_id=CLUSTER, run_id="run-1"))

    def kill(self) -> None:
        """Of its last writes the next one finds some."""
        self.front = None
        for _ in range(self._rng.randint(0, len(self._unsynced))):
            self.records += self._unsynced.popleft().records
        self._unsynced.clear()

    def tell(self, said: BrokerStarted | BrokerLost) -> None:
        """The supervisor's word."""
        self.step(front.Heard(said))

    def step(self, event: front.Event) -> None:
        if self.front is not None:
            self._perform(self.front.step(self._timeline.now, event))

    def decide(self, *records: MetadataRecord) -> None:
        """Take the controller's part: these records are what it decides now."""
        front_now = self.front
        assert front_now is not None
        host = front_now._host
        decision: Decision[MetadataRecord, ControllerReply] = Decision(records)
        step = host.step
        try:
            host.step = lambda _now, _event: host._carry_out(decision)  # type: ignore[method-assign, assignment]  # a decision in place of the shard's
            effects = front_now._host_step(self._timeline.now, Tick())
        finally:
            host.step = step  # type: ignore[method-assign]  # as it was
        self._perform(effects)

    @property
    def image(self) -> MetadataImage:
        """What is committed."""
        return self._replayed() if self.front is None else self.front.feed.image

    def _look_at(self, records: Iterable[MetadataRecord]) -> None:
        views: dict[tuple[Uuid, int], PartitionView] = {}
        for record in records:
            if isinstance(record, PartitionChanged):
                place = (record.topic, record.partition)
                check_moved(views.get(place) or self.image.partition(*place), record.view)
                views[place] = record.view

    def _replayed(self) -> MetadataImage:
        image = MetadataImage()
        for record in self.records:
            image.replay(record)
        return image

    def _perform(self, effects: Iterable[front.Effect]) -> None:
        current = self.front
        for effect in effects:
            match effect:
                case front.Append():
                    self._append(current, effect)
                case front.SendTo(peer, message):
                    self._send(peer, message)
                case front.Fence(broker, epoch):
                    self._fences.fence(broker, epoch)
                case front.LossyElection():
                    self.lossy.append(effect)
                case front.GiveUp(reason):
                    raise AssertionError(reason)
                case _:
                    pass
        deadline = None if current is None else current.deadline()
        if deadline is not None:
            self._timeline.at(deadline, lambda: self._tick(current))

    def _tick(self, current: Front | None) -> None:
        if self.front is current and current is not None:
            deadline = current.deadline()
            if deadline is not None and deadline <= self._timeline.now:
                self.step(Tick())

    def _append(self, current: Front | None, batch: front.Append) -> None:
        self._unsynced.append(batch)

        def synced() -> None:
            if self.front is not current:
                return
            first = self._unsynced.popleft()
            assert first is batch
            assert batch.base == len(self.records), (batch.base, len(self.records))
            self._look_at(batch.records)
            self.records += batch.records
            end = Offset(len(self.records))
            self.step(LogAppended(batch.ticket, end))
            self.step(LogCommitted(end))
            self._on_committed(self.image)

        takes = ms(self._rng.uniform(*SYNC_MS))
        self._synced_at = max(self._synced_at, Instant(self._timeline.now + takes))
        self._timeline.at(self._synced_at, synced)
