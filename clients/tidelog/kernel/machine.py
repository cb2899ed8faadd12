"""The contract of a state machine: a time and an event in, effects out, no I/O."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tidelog.kernel.instant import Instant

EventT_contra = TypeVar("EventT_contra", contravariant=True)
EffectT_co = TypeVar("EffectT_co", covariant=True)


class Machine(Protocol[EventT_contra, EffectT_co]):
    """Takes events, gives effects; its shell performs them in order and brings back results."""

    def step(self, now: Instant, event: EventT_contra) -> Sequence[EffectT_co]: ...

    def deadline(self) -> Instant | None:
        """When it wants a tick if nothing else happens."""
        ...
