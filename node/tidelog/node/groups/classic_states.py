"""The states of a classic group, and why it goes from one to another."""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final


class Phase(Enum):
    """Where a group stands; the words are Kafka's."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


TRANSITIONS: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.EMPTY: frozenset({Phase.PREPARING}),
    Phase.PREPARING: frozenset({Phase.COMPLETING, Phase.EMPTY}),
    Phase.COMPLETING: frozenset({Phase.STABLE, Phase.PREPARING}),
    Phase.STABLE: frozenset({Phase.PREPARING}),
}


class Trigger(StrEnum):
    """Why a rebalance began."""

    JOIN = "join"
    LEAVE = "leave"
    SESSION_TIMEOUT = "session time-out"
    REBALANCE_TIMEOUT = "rebalance time-out"
    SUBSCRIPTION = "subscription change"
    LEADER = "leader asks"
    """It alone sees that topics grew, or that a new one fits: it joins again to assign anew."""
    STATIC = "static member replaced"
    DISCONNECT = "connection ended"
    REJOIN = "joins again"
    MOVED = "coordinator moved"
