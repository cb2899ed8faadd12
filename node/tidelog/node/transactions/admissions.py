"""What the transaction coordinator says of itself: whose first records these partitions may take.

A producer that adds a partition writes to it a moment later. Its leader knows by then that the
partition is part of the transaction, and need not ask. No I/O but through the log.
"""

from collections.abc import Callable
from typing import NamedTuple

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.node.replica.replicas import Replicas
from tidelog.wire.errors import Rejected
from tidelog.wire.transactions import Admit, Admitted


class Admissions(NamedTuple):
    """What this uses of its broker."""

    replicas: Replicas
    on_storage_failure: Callable[[TopicPartition, Exception], None]

    def take(self, message: Admit) -> None:
        """Nothing is kept for a partition that is not led here under that epoch."""
        for one in message.partitions:
            self._take(message, one)

    def _take(self, message: Admit, one: Admitted) -> None:
        try:
            replica, leader = self.replicas.led(
                one.topic, Partition(one.partition), epoch=one.leader_epoch
            )
        except Rejected:
            return
        try:
            verifications = replica.log.producers.verifications
        except (OSError, CorruptError) as failure:
            self.on_storage_failure(replica.key, failure)
            return
        verifications.admit(message.producer_id, message.producer_epoch, leader.epoch)
