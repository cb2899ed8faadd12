"""`log verify` finds one flipped bit in each field of what a log is made of, wherever it stands."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.logs.verified import Home, home_in
from tidelog.node.log.index import TIME_ENTRY
from tidelog.tools.log_files.verify_log import Life
from tidelog.wire.log_files import ABORTED_ENTRY as TXN_ENTRY
from tidelog.wire.log_files import OFFSET_ENTRY_BYTES
from tidelog.wire.records import HEADER_BYTES, iterate_batches


class Field(NamedTuple):
    """A part of a batch or an entry: its first and its last byte."""

    name: str
    first: int
    last: int


BATCH = (
    Field("base offset", 0, 7),
    Field("batch length", 8, 11),
    Field("leader epoch", 12, 15),
    Field("magic", 16, 16),
    Field("checksum", 17, 20),
    Field("attributes", 21, 22),
    Field("last offset delta", 23, 26),
    Field("base timestamp", 27, 34),
    Field("largest timestamp", 35, 42),
    Field("producer id", 43, 50),
    Field("producer epoch", 51, 52),
    Field("base sequence", 53, 56),
    Field("number of records", 57, 60),
    Field("first record", HEADER_BYTES, HEADER_BYTES),
)
OFFSET_ENTRY = (Field("offset", 0, 3), Field("position", 4, 7))
TIME = (Field("timestamp", 0, 7), Field("offset", 8, 11))
ABORTED = (
    Field("version", 0, 1),
    Field("producer id", 2, 9),
    Field("first offset", 10, 17),
    Field("last offset", 18, 25),
    Field("last stable offset", 26, 33),
)
INDEXES = {
    ".index": (OFFSET_ENTRY_BYTES, OFFSET_ENTRY),
    ".timeindex": (TIME_ENTRY.size, TIME),
    ".txnindex": (TXN_ENTRY.size, ABORTED),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """After a clean stop; every damage is taken back."""
    return home_in(tmp_path_factory.mktemp("homes"), 0, Life.CLOSED)


def files(home: Home, suffix: str) -> list[Path]:
    """Those with bytes in them, oldest first."""
    found = [one for one in (home.path / "t-0").glob(f"*{suffix}") if one.stat().st_size]
    assert found, suffix
    return sorted(found)


def ends_and_middle(places: Sequence[int]) -> list[int]:
    return sorted({places[0], places[len(places) // 2], places[-1]})


def missed(home: Home, path: Path, field: Field, places: Sequence[int]) -> Iterator[str]:
    """Flips that nobody sees: of the highest bit of the field, and of its lowest."""
    content = path.read_bytes()
    for place in ends_and_middle(places):
        for at, bit in ((field.first, 0x80), (field.last, 1)):
            bad = bytearray(content)
            bad[place + at] ^= bit
            path.write_bytes(bad)
            if not home.verified().findings:
                yield f"{path.name}: {field.name}, byte {place + at}, bit {bit:#x}"
    path.write_bytes(content)


@pytest.mark.parametrize("field", BATCH, ids=lambda field: field.name)
def test_a_flipped_bit_of_a_batch_is_found(home: Home, field: Field) -> None:
    """Offset, length, leader epoch and magic stand outside the checksum."""
    unseen: list[str] = []
    for path in ends_of(files(home, ".log")):
        starts, position = [], 0
        for header, _ in iterate_batches(memoryview(path.read_bytes())):
            starts.append(position)
            position += header.size_bytes
        unseen += missed(home, path, field, starts)
    assert unseen == []


@pytest.mark.parametrize(
    ("suffix", "field"),
    [(suffix, field) for suffix, (_, fields) in INDEXES.items() for field in fields],
    ids=lambda one: one.name if isinstance(one, Field) else one,
)
def test_a_flipped_bit_of_an_index_is_found(home: Home, suffix: str, field: Field) -> None:
    size, fields = INDEXES[suffix]
    assert size == fields[-1].last + 1
    unseen: list[str] = []
    for path in ends_of(files(home, suffix)):
        unseen += missed(home, path, field, range(0, path.stat().st_size, size))
    assert unseen == []


def ends_of(paths: Sequence[Path]) -> list[Path]:
    return sorted({paths[0], paths[-1]})
