"""Tells the other brokers, by the board, whether there is room here, and has them lead what there
is none for. A shell: `replica/room.py` decides."""

from collections.abc import Callable

from tidelog.kernel.ids import BrokerId, TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Role, SlotState, SlotWriter, Word, slot_of
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.room import HAS_ROOM, Room
from tidelog.wire.control import NoRoom


class RoomKeeper:
    """Invariant: the board says what `room` says, but within a call."""

    def __init__(
        self,
        room: Room,
        board: Board,
        slot: SlotWriter,
        image: Callable[[], MetadataImage],
        hand_over: Callable[[tuple[NoRoom, ...]], None],
    ) -> None:
        self._room = room
        self._board = board
        self._slot = slot
        self._image = image
        self._hand_over = hand_over

    def failed(self, now: Instant, key: TopicPartition, failure: Exception) -> None:
        """Something could not be done with a replica's files."""
        if self._room.failed(now, key, failure):
            self._publish()
            self._tell(self._room.asks(now, self._has_room, key))

    def turn(self, now: Instant) -> None:
        """Ten times a second."""
        if self._room.full_at != HAS_ROOM:
            self._room.turn(now)
            self._publish()
            self._tell(self._room.asks(now, self._has_room))

    def full_at(self, broker: BrokerId) -> Instant:
        """When another broker last found no room."""
        slot = self._board.read_slot(slot_of(Role.BROKER, broker))
        return HAS_ROOM if slot is None else Instant(slot[Word.NO_ROOM_AT])

    def _has_room(self, broker: BrokerId) -> bool:
        image, slot = self._image(), self._board.read_slot(slot_of(Role.BROKER, broker))
        return (
            slot is not None
            and image.is_active(broker)
            and slot[Word.INCARNATION] == image.brokers[broker].incarnation
            and slot[Word.STATE] == SlotState.RUNNING
            and slot[Word.NO_ROOM_AT] == HAS_ROOM
        )

    def _publish(self) -> None:
        words, full_at = self._slot.words, self._room.full_at
        if words[Word.NO_ROOM_AT] != full_at:
            words[Word.NO_ROOM_AT] = full_at
            self._slot.publish()

    def _tell(self, places: tuple[NoRoom, ...]) -> None:
        if places:
            self._hand_over(places)
