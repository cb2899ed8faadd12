"""What the transaction coordinator told a toy broker unasked, kept as long as that is good for."""

from collections.abc import Callable

from harness.toy_transaction_logs import Data
from tidelog.kernel.ids import Epoch, Partition, TopicPartition
from tidelog.wire.transactions import Admit

Leads = Callable[[TopicPartition, Epoch], bool]


class ToyAdmissions:
    """A word is kept until the producer's first batch, or its next marker, is in the partition."""

    def __init__(self, leads: Leads) -> None:
        self._leads = leads
        self._kept: dict[tuple[TopicPartition, int], tuple[int, Epoch]] = {}

    def take(self, message: Admit) -> None:
        for one in message.partitions:
            key = (one.topic, Partition(one.partition))
            if self._leads(key, one.leader_epoch):
                word = (message.producer_epoch, one.leader_epoch)
                self._kept[key, message.producer_id] = word

    def let_in(self, key: TopicPartition, data: Data) -> bool:
        """Whether it may be the first of its transaction, and nobody need be asked."""
        known = self._kept.get((key, data.producer_id))
        return known is not None and known[0] == data.producer_epoch and self._leads(key, known[1])

    def forget(self, key: TopicPartition, producer_id: int) -> None:
        self._kept.pop((key, producer_id), None)

    def clear(self) -> None:
        self._kept.clear()
