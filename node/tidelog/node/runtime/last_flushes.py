"""When each file was flushed last, and how long that took, in a ledger's rows: for people."""

from tidelog.node.ipc.ledger_layout import Place, Rows


class LastFlushes:
    """Of files that were flushed at all; used under the ledger's lock."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._places: dict[int, Place] = {}

    def note(self, inode: int, begun: int, ended: int) -> None:
        place = self._places.get(inode)
        if place is not None:
            self._rows.set_flushed(place, ended, ended - begun)
        elif (place := self._rows.put_flushed(inode, ended, ended - begun)) is not None:
            self._places[inode] = place

    def forget(self, inode: int) -> None:
        place = self._places.pop(inode, None)
        if place is not None:
            self._rows.free(place)

    def take_up(self, inode: int, place: Place) -> None:
        """What an earlier life left."""
        self._places[inode] = place
