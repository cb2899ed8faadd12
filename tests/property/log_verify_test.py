"""`log verify` finds whatever a disk may do to any one file: flipped bits, lost tails, lost pages.

What it may miss is said in one place, `is_harmless`: values that are as good as the true ones.
"""

import functools
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from harness.log_verified import around, files_of, lived, verified
from harness.memory_disk import MemoryDisk
from tidelog.kernel.failures import CorruptError
from tidelog.node.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
)
from tidelog.node.log.epochs import FILE_NAME as EPOCHS
from tidelog.node.log.epochs import EpochCache, decode_epochs
from tidelog.node.log.marks import MARK_NAME, Mark, decode_mark

Harm = Callable[[bytearray, Random], None]

PAGE = 512
KINDS = (
    ".log",
    ".index",
    ".timeindex",
    ".snapshot",
    EPOCHS,
    "partition.metadata",
    RECOVERY_POINTS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    "meta.properties",
    MARK_NAME,
    ".kafka_cleanshutdown",
)


def test_what_was_left_clean_is_clean() -> None:
    for seed in range(3):
        report = verified(lived(seed).directory(), around())
        assert report.findings == []
        assert (report.looked.partitions, report.looked.directories) == (2, 1)
        assert report.looked.batches > 150


@functools.cache
def made(seed: int) -> MemoryDisk:
    """Once: every damage is taken back."""
    return lived(seed)


def flip(content: bytearray, rng: Random) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def cut(content: bytearray, rng: Random) -> None:
    del content[rng.randrange(len(content)) :]


def lose_page(content: bytearray, rng: Random) -> None:
    """It reads as zeros; of a small file that is all of it."""
    start = rng.randrange(len(content)) // PAGE * PAGE
    stop = min(start + PAGE, len(content))
    content[start:stop] = bytes(stop - start)


@pytest.mark.slow
@pytest.mark.parametrize("harm", [flip, cut, lose_page])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(seed=st.integers(0, 1 << 30))
def test_damage_is_found(kind: str, harm: Harm, seed: int) -> None:
    rng = Random(seed)
    disk = made(rng.randrange(3))
    files = {name: content for name, content in files_of(disk.root).items() if name.endswith(kind)}
    name = rng.choice(sorted(files))
    content = files[name]
    before = bytes(content)
    try:
        harm(content, rng)
        assume(bytes(content) != before)
        mark = decode_mark(disk.directory().read_all(MARK_NAME))
        if not is_harmless(name, before, bytes(content), mark):
            assert verified(disk.directory(), around()).findings, (name, harm)
    finally:
        content[:] = before


def is_harmless(name: str, before: bytes, after: bytes, mark: Mark | None) -> bool:
    """A whole file of possible values: nobody can tell it from a true one, or ever will."""
    try:
        if name.endswith((RECOVERY_POINTS, HIGH_WATERMARKS)):
            was, now = (decode_offsets(content, place="") for content in (before, after))
            assert mark is not None
            ends = {key: mark.logs[f"{key[0]}-{key[1]}"].end for key in was}
            possible = was.keys() == now.keys() and all(now[key] <= ends[key] for key in was)
            return encode_offsets(now) == after and possible
        if name.endswith(EPOCHS):
            assert mark is not None
            start = mark.logs[name.split("/")[-2]].start
            return _from(start, before) == _from(start, after)
    except CorruptError:
        pass
    return False


def _from(start: int, content: bytes) -> EpochCache:
    cache = decode_epochs(content, place="")
    cache.cut_below(start)
    return cache
