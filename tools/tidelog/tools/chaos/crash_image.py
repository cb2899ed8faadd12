"""What a power loss may leave of files and names: the rules, and the draw. Pure.

Stable bytes and names stay. Of what came later the disk may have any part: each 4 KiB page is, by
draw, as it was last, torn in the middle, or as it was before; a file may end anywhere behind its
stable part; names may have been changed or not. The simulated disk of the tests draws by the same
functions.
"""

from collections.abc import Hashable, Mapping
from random import Random
from typing import Final, TypeVar

from msgspec import Struct

PAGE_BYTES: Final = 4096
_ALL_OR_NOTHING: Final = 0.25
_EVEN: Final = 0.5

_Target = TypeVar("_Target", bound=Hashable)


class Fate(Struct, frozen=True):
    """What becomes of a file's bytes."""

    size: int
    """So much of it stays from its beginning, but for torn pages."""
    torn: Mapping[int, int]
    """By where a page begins: from here to its end it is as it was on stable storage; zeros where
    the file was not that long."""
    old_tail: bool
    """Whether behind `size` comes back what stable storage had there."""


def only_stable(stable: int) -> Fate:
    """All that came later is gone."""
    return Fate(stable, {}, old_tail=True)


def draw_bytes(stable: int, size: int, rng: Random) -> Fate:
    """Of a file whose first bytes are on stable storage as they are."""
    if rng.random() < _ALL_OR_NOTHING:
        return only_stable(stable)
    if rng.random() < _ALL_OR_NOTHING:
        return Fate(size, {}, old_tail=False)
    kept = rng.randint(stable, max(stable, size))
    torn = {}
    for start in range(stable - stable % PAGE_BYTES, kept, PAGE_BYTES):
        first = _torn_from(max(start, stable), min(start + PAGE_BYTES, kept), rng)
        if first is not None:
            torn[start] = first
    return Fate(kept, torn, old_tail=rng.random() < _EVEN)


def _torn_from(start: int, stop: int, rng: Random) -> int | None:
    """From where on the unstable part of a page is lost; None where it is there."""
    fate = rng.choice(("kept", "kept", "lost", "torn"))
    if fate == "kept" or start >= stop:
        return None
    return start if fate == "lost" else rng.randint(start, stop)


def draw_names(
    durable: Mapping[str, _Target], now: Mapping[str, _Target], rng: Random
) -> dict[str, _Target]:
    """Of a directory: of the changes that were not synced, some reached the disk all the same."""
    names = dict(durable)
    for name in sorted(now.keys() | durable.keys()):
        if now.get(name) == durable.get(name) or rng.random() >= _EVEN:
            continue
        names.pop(name, None)
        if name in now:
            names[name] = now[name]
    _undo_half_renames(names, durable, now)
    return names


def _undo_half_renames(
    names: dict[str, _Target], durable: Mapping[str, _Target], now: Mapping[str, _Target]
) -> None:
    """A rename is one change: a file that has a new name is not lost between both, and has not
    got both."""
    new_names = {target: name for name, target in now.items()}
    there = set(names.values())
    for old, target in durable.items():
        new = new_names.get(target)
        if new is None or new == old:
            continue
        if target not in there:
            names[new if old in names else old] = target
        elif names.get(old) == target and names.get(new) == target:
            del names[old]
