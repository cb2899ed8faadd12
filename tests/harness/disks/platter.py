"""What a disk in memory is made of: files and names, as they are now and as they outlive a power
loss."""

from collections.abc import Callable
from random import Random

from tidelog.kernel.files import Bytes
from tidelog.tools.chaos.crash_image import PAGE_BYTES, Fate, draw_bytes, draw_names


class Inode:
    """One file's bytes: as the page cache has them, and as the platter does."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.durable = b""
        self.modified_ms = 0
        self._syncs = 0

    def sync(self) -> None:
        self._syncs += 1
        self.durable = bytes(self.content)

    def submit(self) -> Callable[[], None]:
        """Begin a sync: when it is done that is durable which is here now, and no more."""
        content, syncs = bytes(self.content), self._syncs

        def done() -> None:
            if self._syncs == syncs:
                self._syncs += 1
                self.durable = content

        return done

    def lose(self, rng: Random | None) -> None:
        """Power goes: what was synced stays; what was not is gone or, by draw, partly there."""
        kept = self.durable if rng is None else self._draw(rng)
        self.content = bytearray(kept)
        self.durable = bytes(kept)

    def _draw(self, rng: Random) -> bytes:
        fate = draw_bytes(common_prefix(self.durable, self.content), len(self.content), rng)
        return self.left_of(fate)

    def left_of(self, fate: Fate) -> bytes:
        image = bytearray(self.content[: fate.size])
        for start, first in fate.torn.items():
            stop = min(start + PAGE_BYTES, len(image))
            image[first:stop] = self.durable[first:stop].ljust(stop - first, b"\0")
        if fate.old_tail:
            image += self.durable[len(image) :]
        return bytes(image)


def common_prefix(one: Bytes, other: Bytes) -> int:
    """How many bytes they have in common from the front."""
    same, different = 0, min(len(one), len(other)) + 1
    while different - same > 1:
        middle = (same + different) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            different = middle
    return same


class Node:
    """One directory: its names now, and the names that outlive a power loss."""

    def __init__(self) -> None:
        self.names: dict[str, Inode | Node] = {}
        self.durable: dict[str, Inode | Node] = {}

    def sync(self) -> None:
        self.durable = dict(self.names)

    def submit(self) -> Callable[[], None]:
        """As of a file; names that were made durable meanwhile stay so."""
        names, durable = dict(self.names), self.durable

        def done() -> None:
            if self.durable is durable:
                self.durable = names

        return done

    def lose(self, rng: Random | None) -> None:
        names = dict(self.durable) if rng is None else draw_names(self.durable, self.names, rng)
        linked = set(map(id, self.names.values()))
        for child in names.values():
            # A removed file may be back, but nobody writes back what it held unsynced.
            if isinstance(child, Inode) and id(child) not in linked:
                child.content = bytearray(child.durable)
        self.names = names
        self.durable = dict(names)
        for child in names.values():
            child.lose(rng)
