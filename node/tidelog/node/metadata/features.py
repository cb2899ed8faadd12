"""The features of this program, by Kafka's names, with the levels that it knows.

A feature joins the table when it is whole: clients use what they find here.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

METADATA_VERSION: Final = "metadata.version"
"""Which metadata records Kafka's controllers may write; tools ask for it, ours does not need it."""

GROUP_VERSION: Final = "group.version"
"""At 1 there are groups of the consumer protocol; they cannot be turned off."""

TRANSACTION_VERSION: Final = "transaction.version"
"""At 2 a producer that knows of it speaks version 2 of transactions. Brokers answer both versions
at every level, so that it may be raised and lowered while transactions run."""
BUMPING: Final = 2
"""The level from which each end of a transaction takes an epoch. (KIP-890)"""


class Levels(NamedTuple):
    """The lowest and the highest that can be asked for."""

    lowest: int
    highest: int


SUPPORTED: Final[Mapping[str, Levels]] = {
    METADATA_VERSION: Levels(7, 27),
    GROUP_VERSION: Levels(1, 1),
    TRANSACTION_VERSION: Levels(0, 2),
}
"""A new cluster is finalized at the highest level of each."""
KEPT: Final = frozenset({TRANSACTION_VERSION})
"""What an operator lowered stays so; the others are raised to what this program knows."""
