"""The states of a classic group, and which may follow on which."""

from collections.abc import Mapping
from enum import Enum
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
