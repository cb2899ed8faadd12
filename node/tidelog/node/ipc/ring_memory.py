"""Rings in shared memory: the owner makes them, followers map them by name. (shell)"""

import mmap
import os
from collections.abc import Callable

import posix_ipc

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.kernel.launch import ring_name
from tidelog.kernel.limits import RING_BYTES, RING_BYTES_MIN
from tidelog.node.ipc.board import (
    create_memory,
    memory_of_run,
    no_room,
    open_memory,
    remove_memory,
)
from tidelog.node.ipc.ring import RingReader, RingWriter, ring_bytes


class SharedRings:
    """One broker's rings and those it reads."""

    def __init__(
        self,
        run_id: str,
        me: BrokerId,
        incarnation: Incarnation,
        on_no_room: Callable[[str], None],
    ) -> None:
        self._run_id = run_id
        self._me = me
        self._incarnation = incarnation
        self._on_no_room = on_no_room
        self._maps: dict[RingWriter | RingReader, mmap.mmap] = {}

    def make(self, number: int) -> RingWriter | None:
        """As large as there is room for, down to a least size; None below that."""
        self._remove_those_of_earlier_lives()
        name = ring_name(self._run_id, self._me, self._incarnation, number)
        size = RING_BYTES
        while size >= RING_BYTES_MIN:
            mapped = _create(name, ring_bytes(size))
            if mapped is not None:
                ring = RingWriter(memoryview(mapped), self._me, self._incarnation, number)
                self._maps[ring] = mapped
                return ring
            size //= 2
        self._on_no_room(no_room(ring_bytes(RING_BYTES_MIN)))
        return None

    def retire(self, ring: RingWriter) -> None:
        """Its name may be gone already: somebody cleaned up."""
        remove_memory(ring_name(self._run_id, self._me, self._incarnation, ring.number))
        ring.close()
        self._maps.pop(ring).close()

    def open(self, owner: BrokerId, incarnation: Incarnation, number: int) -> RingReader | None:
        try:
            descriptor = open_memory(ring_name(self._run_id, owner, incarnation, number))
        except posix_ipc.ExistentialError:
            return None
        try:
            size = os.fstat(descriptor).st_size
            if not size:
                return None
            mapped = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)
        try:
            ring = RingReader(memoryview(mapped), self._me)
        except CorruptError:
            return None
        self._maps[ring] = mapped
        return ring

    def close(self, ring: RingReader) -> None:
        ring.close()
        self._maps.pop(ring).close()

    def _remove_those_of_earlier_lives(self) -> None:
        """Of this broker: who still reads one keeps it, nobody else needs its name."""
        for name in memory_of_run(self._run_id):
            if name.startswith(ring_name(self._run_id, self._me, None, None)) and not (
                name.startswith(ring_name(self._run_id, self._me, self._incarnation, None))
            ):
                remove_memory(name)


def _create(name: str, size: int) -> mmap.mmap | None:
    """None where there is no room."""
    try:
        descriptor = create_memory(name, size)
    except (OSError, posix_ipc.Error):
        return None
    try:
        return mmap.mmap(descriptor, size)
    finally:
        os.close(descriptor)
