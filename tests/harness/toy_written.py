"""A transaction as its toy producer knows it: what it did, and what it was told."""

from dataclasses import dataclass, field
from itertools import count

from tidelog.kernel.ids import TopicPartition

_serials = count(1)


@dataclass(eq=False)
class Written:
    """One transaction, as its producer knows it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    serial: int = field(default_factory=lambda: next(_serials))
    version: int = 1
    partitions: set[TopicPartition] = field(default_factory=set)
    """Those that took data, or may have."""
    asked: bool | None = None
    """To commit, at any time; or to abort."""
    told: bool | None = None
    """That this is how it ended."""

    @property
    def epoch_at_end(self) -> int:
        """Of the end that its producer asks for."""
        return self.producer_epoch + (self.version == 2)
