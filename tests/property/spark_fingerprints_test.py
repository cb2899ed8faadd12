"""`replay --verify` sees every difference between two logs: planted ones, and drawn ones."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from harness.spark.shared import SharedSpark

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Record = list[Any]
"""Key, value and headers as hexadecimal text or None, and the timestamp in milliseconds."""
Log = list[Record]

AT = 1_767_225_600_000
A, B, K, V, X = ("61", "62", "6b", "76", "78")
DRAWN = 400


def record(
    key: str | None = K, value: str | None = V, headers: list[Any] | None = None, at: int = AT
) -> Record:
    return [key, value, headers, at]


BASE = record()
PLANTED: dict[str, tuple[Log, Log]] = {
    "a tombstone becomes a value without key": ([record(K, None)], [record(None, K)]),
    "a header's name moves to another header's value": (
        [record(headers=[["a", None], ["b", X]])],
        [record(headers=[["a", B], ["x", None]])],
    ),
    "two headers become one": (
        [record(headers=[["a", None], ["b", None]])],
        [record(headers=[["a", B]])],
    ),
    "a value becomes a header's name": (
        [record(value=B)],
        [record(value=None, headers=[["b", None]])],
    ),
    "a null value becomes empty": ([record(value=None)], [record(value="")]),
    "a null key becomes empty": ([record(key=None)], [record(key="")]),
    "a header's null value becomes empty": (
        [record(headers=[["a", None]])],
        [record(headers=[["a", ""]])],
    ),
    "a header without name and value is lost": ([record(headers=[["", None]])], [BASE]),
    "one byte moves from the key to the value": ([record("6b61", V)], [record(K, "6176")]),
    "one byte moves from a header's name to its value": (
        [record(headers=[["ab", X]])],
        [record(headers=[["a", "6278"]])],
    ),
    "two rows are swapped": ([BASE, record(B)], [record(B), BASE]),
    "a byte changes": ([BASE], [record(value="77")]),
    "the timestamp changes by a millisecond": ([BASE], [record(at=AT + 1)]),
    "the timestamp becomes -1": ([BASE], [record(at=-1)]),
    "a row is doubled": ([BASE], [BASE, BASE]),
    "a row is doubled twice": ([BASE], [BASE] * 3),
    "a row is lost": ([BASE, BASE], [BASE]),
    "the only row is lost": ([BASE], []),
}


def drawn(draw: random.Random) -> Iterator[tuple[Log, Log]]:
    """Pairs of logs out of few short texts: what differs often looks alike when put together."""
    while True:
        yield _drawn_log(draw), _drawn_log(draw)
        log = [*_drawn_log(draw), _drawn_record(draw)]
        changed = [*log]
        at = draw.randrange(len(log))
        changed[at] = _changed(log[at], draw)
        yield log, changed


def _drawn_log(draw: random.Random) -> Log:
    return [_drawn_record(draw) for _ in range(draw.randrange(3))]


def _drawn_record(draw: random.Random) -> Record:
    headers = [
        [bytes.fromhex(_text(draw)).decode(), _maybe(draw)] for _ in range(draw.randrange(4))
    ]
    return record(_maybe(draw), _maybe(draw), headers or draw.choice([None, []]))


def _changed(one: Record, draw: random.Random) -> Record:
    """The same texts, null where another was null, put elsewhere."""
    key, value, headers, at = one
    flat = [
        key,
        value,
        *(text for name, text in headers or [] for text in (name.encode().hex(), text)),
    ]
    draw.shuffle(flat)
    pairs = list(zip(flat[2::2], flat[3::2], strict=True))
    return [flat[0], flat[1], [[bytes.fromhex(n or "").decode(), v] for n, v in pairs], at]


def _text(draw: random.Random) -> str:
    return "".join(draw.choice((A, B)) for _ in range(draw.randrange(3)))


def _maybe(draw: random.Random) -> str | None:
    return draw.choice([None, _text(draw)])


def _plain(log: Log) -> Log:
    """No headers and an empty list of them are the same."""
    return [[key, value, headers or [], at] for key, value, headers, at in log]


def test_each_difference_between_two_logs_changes_their_fingerprints(
    shared_spark: SharedSpark,
) -> None:
    seed = random.randrange(1 << 32)
    source = drawn(random.Random(seed))
    pairs = [next(source) for _ in range(DRAWN)]
    same = [([record(headers=None)], [record(headers=[])]), ([BASE], [BASE])]
    asked = [*PLANTED.values(), *same, *pairs]
    found = shared_spark.answers("fingerprints_program", pairs=asked)
    unseen = [name for name, seen in zip(PLANTED, found, strict=False) if not seen]
    wrong = [
        pair
        for pair, seen in zip(asked, found, strict=True)
        if seen != (_plain(pair[0]) != _plain(pair[1]))
    ]
    assert (unseen, wrong[:3]) == ([], []), f"seed {seed}: {len(wrong)} of {len(asked)} pairs"
