"""Where each record begins. A record says its length, so one batch is a chain of steps.

Chains of different batches do not depend on each other: they are walked side by side, a step of
all of them at a time, which costs little for each where there are many. What is left of the long
ones is walked alone.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from tidelog.spark.varints import FAR, Bytes, Numbers, read_varints
from tidelog.wire.errors import WireError
from tidelog.wire.varints import varint

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, two deltas, two sizes and the number of headers, of one byte each."""

_SIDE_BY_SIDE_MIN: Final = 80
"""With fewer chains a step of all of them costs more than walking each alone."""

_ALIKE_MIN: Final = 128
_ALIKE_MAX: Final = 1024
_GUESSES_MAX: Final = 8
"""A guess costs what a hundred plain steps cost."""


@dataclass(frozen=True, slots=True)
class Chains:
    """One a batch, in order: from where to where in the data, and how many records that holds."""

    starts: Numbers
    stops: Numbers
    counts: Numbers


@dataclass(frozen=True, slots=True)
class Walked:
    """Where the records of all chains begin, in order, and which chains do not end where they
    must (theirs mean nothing).
    """

    starts: Numbers
    broken: Numbers


def _steps() -> Numbers:
    """By the first two bytes of a record: how far it is to the next; 0 where two do not say."""
    first, second = np.arange(65536) & 255, np.arange(65536) >> 8
    of_one = np.where(first & 1, FAR, 1 + (first >> 1))
    of_two = np.where(first & 1, FAR, 2 + ((first & 127 | second << 7) >> 1))
    found = np.where(first < 128, of_one, np.where(second < 128, of_two, 0))
    return found.astype(np.int64)


_STEPS: Final = _steps()


def walk(data: Bytes, chains: Chains) -> Walked:
    """All records of all chains. Nothing is trusted: a wrong length leads to a broken chain."""
    rows = np.cumsum(chains.counts) - chains.counts
    found = np.empty(int(chains.counts.sum()), dtype=np.int64)
    order = np.argsort(-chains.counts, kind="stable")
    at, row, counts = chains.starts[order], rows[order], chains.counts[order]
    together = int(counts[_SIDE_BY_SIDE_MIN - 1]) if len(counts) >= _SIDE_BY_SIDE_MIN else 0
    going = np.searchsorted(-counts, -np.arange(together), side="left")
    for step, alive in enumerate(going.tolist()):
        here = at[:alive]
        found[row[:alive] + step] = here
        here += _step(data, here)
    for chain in np.flatnonzero(counts > together).tolist():
        left = int(counts[chain]) - together
        first = int(row[chain]) + together
        stop = int(chains.stops[order[chain]])
        at[chain] = _walk_alone(data, int(at[chain]), stop, found[first : first + left])
    return Walked(found, np.sort(order[at != chains.stops[order]]))


def _step(data: Bytes, at: Numbers) -> Numbers:
    """How far it is from each record to the next; FAR where a length is none."""
    first = data.take(at, mode="clip").astype(np.int64)
    second = data.take(at + 1, mode="clip").astype(np.int64)
    steps = _STEPS.take(first | second << 8)
    if not steps.all():
        rows = np.flatnonzero(steps == 0)
        sizes, behind = read_varints(data, at[rows])
        steps[rows] = np.where(sizes < 0, FAR, behind - at[rows] + np.clip(sizes, 0, FAR))
    return steps


def _walk_alone(data: Bytes, start: int, stop: int, found: Numbers) -> int:
    """Put one chain's records into `found`; where it ends, or FAR where it leaves its data.

    Records of one size are guessed: where the next ones say what this one says of its length, they
    are where they were looked for. After some guesses that did not help no more are made.
    """
    if not start < stop <= len(data):
        return FAR
    text = data[start:stop].tobytes()
    at, row, guesses = start, 0, _GUESSES_MAX
    while row < len(found):
        if not start <= at < stop:
            return FAR
        left = len(found) - row
        alike, step = _alike(data, at, stop, left) if guesses else (0, 0)
        if alike >= _ALIKE_MIN:
            found[row : row + alike] = at + step * np.arange(alike)
            at += step * alike
            row += alike
            continue
        guesses = max(0, guesses - 1)
        count = min(left, _ALIKE_MIN) if guesses else left
        part = found[row : row + count]
        at = start + _walk_plainly(text, at - start, part)
        part += start
        row += count
    return at


def _alike(data: Bytes, at: int, stop: int, left: int) -> tuple[int, int]:
    """How many records from there on are of one size, as far as is looked, and that size."""
    step = int(_step(data, np.array([at]))[0])
    if step > stop - at:
        return 0, 0
    places = at + step * np.arange(min(left, (stop - at) // step, _ALIKE_MAX))
    differs = np.zeros(len(places), dtype=np.bool_)
    more = True
    while more:
        byte = data[at]
        differs |= data.take(places, mode="clip") != byte
        more = bool(byte > 127) and at + 1 < stop
        at += 1
        places += 1
    return (int(differs.argmax()) if differs.any() else len(places)), step


def _walk_plainly(text: bytes, at: int, found: Numbers) -> int:
    """As `_walk_alone`, one record after the other."""
    places = [0] * len(found)
    try:
        for row in range(len(places)):
            places[row] = at
            first = text[at]
            if not first & 129:  # one byte, and no length below zero
                at += 1 + (first >> 1)
            elif not first & 1 and (second := text[at + 1]) < 128:
                at += 2 + ((first & 127 | second << 7) >> 1)
            else:
                size, at = varint(text, at)
                at += size if size >= 0 else FAR
    except (IndexError, WireError):
        return FAR
    found[:] = places
    return at
