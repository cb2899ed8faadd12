"""The partitions of `__transaction_state`, as many as the topic has."""

from collections import deque
from collections.abc import Callable, Sequence

from tidelog.coordinator.transactions.around import Around, partition_of_call
from tidelog.coordinator.transactions.records import TxnRecord
from tidelog.coordinator.transactions.requests import Reply
from tidelog.coordinator.transactions.state_partition import Callbacks, StatePartition
from tidelog.kernel.ids import BrokerId, Partition, RequestId, Uuid
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import TRANSACTION_LOADS_MAX
from tidelog.node.groups.placement import partition_of
from tidelog.wire.transactions import STATE_TOPIC, Appended, Chunk


class Partitions:
    """Invariant: one StatePartition for each partition of the topic; a few read at a time."""

    def __init__(
        self,
        around: Around,
        *,
        on_reply: Callable[[Instant, RequestId, Reply], None],
        on_committed: Callable[[Instant, Partition, Sequence[TxnRecord]], None],
        on_open: Callable[[Instant, StatePartition], None],
    ) -> None:
        self._around = around
        self._callbacks = Callbacks(
            on_reply=on_reply,
            on_committed=on_committed,
            on_open=on_open,
            on_queued=self._on_queued,
            may_read=self._may_read,
            has_read=self._has_read,
        )
        self._topic: Uuid | None = None
        self._places: list[StatePartition] = []
        self._queued: dict[StatePartition, None] = {}
        self._reading: dict[StatePartition, None] = {}
        self._wait_to_read: deque[StatePartition] = deque()

    def get(self, partition: Partition) -> StatePartition | None:
        return self._places[partition] if partition < len(self._places) else None

    def of(self, transactional_id: str) -> StatePartition | None:
        """The one that keeps the id; None where the topic is not there."""
        if not self._places:
            return None
        return self._places[partition_of(transactional_id, len(self._places))]

    def led_by(self, broker: BrokerId) -> list[StatePartition]:
        """Those that a broker leads, as far as the image knows."""
        topic = self._around.image.names.get(STATE_TOPIC)
        if topic is None or not self._places:
            return []
        return [one for one in self._places if topic.partitions[one.index].leader == broker]

    @property
    def open_transactions(self) -> int:
        return sum(one.shard.open_count for one in self._places if one.shard is not None)

    def look(self, now: Instant) -> None:
        """The image has moved on, or another connection stands."""
        topic = self._around.image.names.get(STATE_TOPIC)
        if topic is not None and (topic.id != self._topic or len(topic.partitions) != len(self)):
            # The topic's first sight. Nobody may delete it, or give it more partitions.
            for place in self._places:
                place.give_up(now, "the topic is another one")
            self._topic = topic.id
            self._places = [
                StatePartition(Partition(index), self._around, self._callbacks)
                for index in range(len(topic.partitions))
            ]
        for place in self._places:
            place.look(now)

    def __len__(self) -> int:
        return len(self._places)

    def answered(self, now: Instant, message: Appended | Chunk) -> None:
        """By the leader of one of them."""
        place = self.get(partition_of_call(message.call))
        if place is None:
            return
        if isinstance(message, Chunk):
            place.chunk(now, message)
        else:
            place.appended(now, message)

    def tick(self, now: Instant) -> None:
        for place in self._places:
            place.tick(now)

    def flush(self, now: Instant) -> None:
        queued, self._queued = self._queued, {}
        for place in queued:
            place.flush(now)

    def _on_queued(self, place: StatePartition) -> None:
        self._queued[place] = None

    def _may_read(self, place: StatePartition) -> bool:
        if len(self._reading) >= TRANSACTION_LOADS_MAX:
            self._wait_to_read.append(place)
            return False
        self._reading[place] = None
        return True

    def _has_read(self, place: StatePartition) -> None:
        if place in self._wait_to_read:
            self._wait_to_read.remove(place)
        if self._reading.pop(place, place) is None and self._wait_to_read:
            following = self._wait_to_read.popleft()
            self._reading[following] = None
            following.begin_reading()
