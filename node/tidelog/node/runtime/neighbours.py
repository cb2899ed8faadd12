"""Knows of the other brokers' deaths as soon as their supervisor does. A shell.

What the metadata says comes later: it is decided first, and brought to disk. A client that lost its
connection asks for metadata within a millisecond, and must not be sent back to the dead.
"""

import os
import select
from collections.abc import Iterable

from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Role, Word, slot_of
from tidelog.node.metadata.image import BrokerView, MetadataImage


class Neighbours:
    """Invariant: of each other broker that is alive by the image there is a descriptor of its
    process, or it stands in `_dead`."""

    def __init__(self, board: Board, me: BrokerId) -> None:
        self._board = board
        self._me = me
        self._alive: dict[BrokerId, BrokerView] = {}
        self._descriptors: dict[BrokerId, int] = {}
        self._dead: set[BrokerId] = set()
        self._poll = select.poll()

    def follow(self, image: MetadataImage, changed: Iterable[BrokerId]) -> None:
        """The image says something new of these brokers."""
        for broker in changed:
            if broker != self._me:
                self._forget(broker)
                if image.is_alive(broker):
                    self._watch(image.brokers[broker])

    def someone_left(self) -> bool:
        """Whether a broker is dead or given up that the image counts as alive."""
        fences = self._board.fences
        return (
            bool(self._dead)
            or any(fences.is_fenced(one.id, one.epoch) for one in self._alive.values())
            or bool(self._poll.poll(0))
        )

    def close(self) -> None:
        for broker in list(self._alive):
            self._forget(broker)

    def _watch(self, view: BrokerView) -> None:
        self._alive[view.id] = view
        descriptor = self._open(view.id, view.incarnation)
        if descriptor is None:
            self._dead.add(view.id)
            return
        self._descriptors[view.id] = descriptor
        self._poll.register(descriptor, select.POLLIN)

    def _open(self, broker: BrokerId, incarnation: Incarnation) -> int | None:
        slot = self._board.read_slot(slot_of(Role.BROKER, broker))
        if slot is None or slot[Word.INCARNATION] != incarnation:
            return None
        try:
            return os.pidfd_open(slot[Word.PID])
        except OSError:
            return None  # it has ended, and its parent has taken note of it

    def _forget(self, broker: BrokerId) -> None:
        self._alive.pop(broker, None)
        self._dead.discard(broker)
        descriptor = self._descriptors.pop(broker, None)
        if descriptor is not None:
            self._poll.unregister(descriptor)
            os.close(descriptor)
