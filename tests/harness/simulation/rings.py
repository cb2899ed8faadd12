"""Rings in plain memory: as shared memory, they outlive whoever made them."""

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.node.ipc.ring import RingReader, RingWriter, ring_bytes

Name = tuple[BrokerId, Incarnation, int]


class Shelf:
    """All rings there are, by name. Whoever mapped one keeps it when the name is gone."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Of the data of rings made from now on; 0: there is no room for any."""
        self.named: dict[Name, bytearray] = {}


class MemoryRings:
    """One life's rings, and those it reads."""

    def __init__(self, shelf: Shelf, me: BrokerId, incarnation: Incarnation) -> None:
        self._shelf = shelf
        self._me = me
        self._incarnation = incarnation

    def make(self, number: int) -> RingWriter | None:
        named = self._shelf.named
        for owner, incarnation, other in list(named):
            if owner == self._me and incarnation != self._incarnation:
                del named[owner, incarnation, other]
        if not self._shelf.size:
            return None
        memory = bytearray(ring_bytes(self._shelf.size))
        named[self._me, self._incarnation, number] = memory
        return RingWriter(memoryview(memory), self._me, self._incarnation, number)

    def retire(self, ring: RingWriter) -> None:
        del self._shelf.named[self._me, self._incarnation, ring.number]
        ring.close()

    def open(self, owner: BrokerId, incarnation: Incarnation, number: int) -> RingReader | None:
        memory = self._shelf.named.get((owner, incarnation, number))
        if memory is None:
            return None
        try:
            return RingReader(memoryview(memory), self._me)
        except CorruptError:
            return None

    def close(self, ring: RingReader) -> None:
        ring.close()
