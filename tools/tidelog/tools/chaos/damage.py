"""What a disk does to bytes that lie on it, drawn by a seed (pure)."""

from collections.abc import Collection
from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from tidelog.tools.chaos.crash_image import PAGE_BYTES

if TYPE_CHECKING:
    from random import Random

_DRAWS_MAX: Final = 100


class How(Enum):
    """What goes wrong."""

    BIT_FLIP = "bit-flip"
    """One bit is another."""
    ZERO_PAGE = "zero-page"
    """A page reads as zeros: its write was lost."""
    STRAY_PAGE = "stray-page"
    """A page reads as another one of the file: a write went to the wrong place."""
    TRUNCATE = "truncate"
    """The file ends too early."""


class NoDamageError(Exception):
    """These bytes cannot be damaged so; the text says why."""


class Damage(Struct, frozen=True):
    """`old` at `position` becomes `new`; where that is shorter, the file ends behind it."""

    position: int
    old: bytes
    new: bytes

    @property
    def is_cut(self) -> bool:
        return len(self.new) < len(self.old)

    def of(self, content: bytes) -> bytes:
        """What the file holds then."""
        end = self.position + len(self.old)
        assert content[self.position : end] == self.old, self.position
        return content[: self.position] + self.new + content[end:]


class Within(Struct, frozen=True):
    """Where the damage is to be: at or behind `start`, before `stop`."""

    start: int
    stop: int
    whole_at: Collection[int] = ()
    """A file that is cut there is whole, only shorter: no damage, and nobody could tell."""


def draw_damage(content: bytes, how: How, within: Within, rng: "Random") -> Damage:
    """NoDamageError where nothing that may be drawn changes a byte."""
    if not content:
        raise NoDamageError("the file is empty")
    if how is How.STRAY_PAGE and len(content) <= PAGE_BYTES:
        raise NoDamageError(f"the file has {len(content)} bytes, so no other page to be mistaken")
    for _ in range(_DRAWS_MAX):
        at = rng.randrange(within.start, within.stop)
        damage = _draw(content, how, at, rng)
        if damage.new != damage.old and not (damage.is_cut and at in within.whole_at):
            return damage
    if how is How.TRUNCATE:
        raise NoDamageError("a batch begins there: a log cut there is whole, only shorter")
    raise NoDamageError("the bytes would be the same")


def _draw(content: bytes, how: How, at: int, rng: "Random") -> Damage:
    if how is How.BIT_FLIP:
        return Damage(at, content[at : at + 1], bytes([content[at] ^ 1 << rng.randrange(8)]))
    if how is How.TRUNCATE:
        return Damage(at, content[at:], b"")
    page = at // PAGE_BYTES * PAGE_BYTES
    old = content[page : page + PAGE_BYTES]
    if how is How.ZERO_PAGE:
        return Damage(page, old, bytes(len(old)))
    other = rng.randrange(-(-len(content) // PAGE_BYTES)) * PAGE_BYTES
    stray = content[other : other + PAGE_BYTES].ljust(PAGE_BYTES, b"\0")
    return Damage(page, old, stray[: len(old)])
