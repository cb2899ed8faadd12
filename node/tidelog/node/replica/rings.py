"""Where rings come from: shared memory in a process, plain memory in a simulation."""

from typing import Protocol

from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.node.ipc.ring import RingReader, RingWriter


class Rings(Protocol):
    """Makes, finds and lets go of them."""

    def make(self, number: int) -> RingWriter | None:
        """A ring of this broker's own; None where there is no room: then all goes as bytes."""
        ...

    def retire(self, ring: RingWriter) -> None:
        """Nothing is put in any more; whoever still reads it may go on."""
        ...

    def open(self, owner: BrokerId, incarnation: Incarnation, number: int) -> RingReader | None:
        """Somebody else's; None where it cannot be read (any more)."""
        ...

    def close(self, ring: RingReader) -> None: ...


class NoRings:
    """For who needs none: everything goes as bytes."""

    def make(self, number: int) -> RingWriter | None:
        """None is had."""
        del number
        return None

    def retire(self, ring: RingWriter) -> None:
        """None was made."""

    def open(self, owner: BrokerId, incarnation: Incarnation, number: int) -> RingReader | None:
        """None is read."""
        del owner, incarnation, number
        return None

    def close(self, ring: RingReader) -> None:
        """None was opened."""
