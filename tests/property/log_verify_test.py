"""`log verify` finds whatever `chaos corrupt` does to any one file, and so whatever a disk may do.

What it may miss is said in one place, `is_harmless`: values that are as good as the true ones.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Protocol

import pytest

from harness.faults.planting import Planting
from harness.logs.verified import Home, home_in
from harness.suite.budgets import Histories
from tidelog.kernel.failures import CorruptError
from tidelog.node.log.directory_names import key_of
from tidelog.node.log.epochs import EpochCache, decode_epochs
from tidelog.node.log.marks import MARK_NAME, decode_mark
from tidelog.node.log.scan import Scan
from tidelog.tools.chaos.corrupting import Files, Spot, Wanted, plan_damage
from tidelog.tools.chaos.damage import How, NoDamageError
from tidelog.tools.log_files.kinds import base_of
from tidelog.tools.log_files.txn_index import Seen
from tidelog.tools.log_files.verify_log import Life
from tidelog.wire.checkpoints import (
    LOG_STARTS,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
)
from tidelog.wire.log_files import Aborted, decode_aborted
from tidelog.wire.records import HEADER, BatchHeader, iterate_batches, new_header

OFFSETS = {Files.RECOVERY_POINTS, Files.HIGH_WATERMARKS, Files.LOG_STARTS}
LIVES = (Life.CLOSED, Life.OPEN, Life.KILLED, Life.POWER_LOST)
SEEDS = 3


class Homes(Protocol):
    def __call__(self, seed: int, life: Life, *, compacted: bool) -> Home: ...


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    """Made once: every damage is taken back."""
    folder = tmp_path_factory.mktemp("homes")
    return partial(home_in, folder)


@pytest.mark.parametrize("compacted", [False, True])
@pytest.mark.parametrize("life", LIVES)
def test_what_was_left_clean_is_clean(homes: Homes, life: Life, *, compacted: bool) -> None:
    for seed in range(SEEDS):
        home = homes(seed, life, compacted=compacted)
        report = home.verified()
        assert report.findings == []
        assert (report.looked.partitions, report.looked.directories) == (2, 1)
        assert report.looked.batches > 150


CASES = [
    (files, how)
    for files in Files
    for how in How
    # No other file has a second page that could be mistaken.
    if how is not How.STRAY_PAGE or files is Files.LOG
]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("files", "how"), CASES)
def test_damage_is_found(homes: Homes, files: Files, how: How, histories: Histories) -> None:
    histories.run(lambda seed: _damage_and_look(homes, files, how, seed))


def _damage_and_look(homes: Homes, files: Files, how: How, seed: int) -> None:
    rng = Random(f"{files} {how} {seed}")
    # Nobody shortens a file that a process has open.
    lives = [life for life in LIVES if how is not How.TRUNCATE or life is not Life.OPEN]
    home = homes(rng.randrange(SEEDS), rng.choice(lives), compacted=rng.random() < 0.5)
    logs = sorted(path for path in home.path.iterdir() if key_of(path.name) is not None)
    spot = plan(rng.choice(logs), Wanted(files, how), seed, home.life)
    if spot is None:
        return  # there is nothing of that kind to be damaged
    before = spot.path.read_bytes()
    after = spot.damage.of(before)
    assert len(after) == len(before) or how is How.TRUNCATE
    try:
        spot.path.write_bytes(after)
        if not is_harmless(home, files, spot.path, (before, after)):
            assert home.verified().findings, (spot, home)
    finally:
        spot.path.write_bytes(before)


def _passes_over_checksums(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        Scan, "_crc", lambda scan, _: new_header(HEADER.unpack_from(scan._buffer, scan._at)).crc
    )


def test_a_check_that_passes_over_checksums_is_caught(homes: Homes, planting: Planting) -> None:
    """The plant: then some of the damage to records is not found."""
    home = homes(0, Life.CLOSED, compacted=False)
    assert home.verified().findings == []
    planting.is_found(_passes_over_checksums, partial(_is_told_of_a_bit_flip, home, Files.LOG))


def _is_told_of_a_bit_flip(home: Home, files: Files, seed: int) -> None:
    spot = plan(home.path / "t-0", Wanted(files, How.BIT_FLIP), seed, home.life)
    assert spot is not None
    before = spot.path.read_bytes()
    after = spot.damage.of(before)
    try:
        spot.path.write_bytes(after)
        if not is_harmless(home, files, spot.path, (before, after)):
            assert home.verified().findings
    finally:
        spot.path.write_bytes(before)


def test_a_check_that_takes_any_entry_of_a_compacted_log_is_caught(
    homes: Homes, planting: Planting
) -> None:
    """The plant: as long as an entry need not stand beside its marker, readers may be told to leave
    out what was committed, and nobody finds it."""
    home = homes(0, Life.OPEN, compacted=True)
    for check in (home.path / "t-0").glob("*.txncheck"):
        check.unlink()  # as an earlier version leaves its indexes
    planting.is_found(
        lambda patch: patch.setattr(Seen, "is_of", lambda _seen, _entry: True),
        partial(_is_told_of_a_bit_flip, home, Files.TXN_INDEX),
    )


def plan(partition: Path, wanted: Wanted, seed: int, life: Life) -> Spot | None:
    try:
        return plan_damage(partition, wanted, seed, is_closed=life is Life.CLOSED)
    except NoDamageError:
        return None


def is_harmless(home: Home, files: Files, path: Path, both: tuple[bytes, bytes]) -> bool:
    """A whole file of possible values: nobody can tell it from a true one, or ever will."""
    before, after = both
    try:
        if files in OFFSETS:
            return are_possible_offsets(home, files, before, after)
        if files in {Files.INDEX, Files.TIME_INDEX}:
            return home.life is Life.POWER_LOST and is_made_anew(home, path)
        is_compacted = home.compacted and path.parent.name == "t-0"
        if is_compacted and files in {Files.EPOCHS, Files.TXN_INDEX}:
            return says_the_same_of_what_is_left(files, path.parent, both)
        start = start_of(home.path, path.parent.name)
        if files is Files.EPOCHS:
            if home.life is not Life.CLOSED:
                # The log may begin later than its checkpoint says, which is written now and then.
                start = max([start, *(at for _, at in _from(start, after).entries()[:1])])
            return _from(start, before) == _from(start, after)
        if files is Files.TXN_INDEX:
            return _above(start, before) == _above(start, after)
    except CorruptError:
        pass
    return False


def are_possible_offsets(home: Home, files: Files, before: bytes, after: bytes) -> bool:
    """After a clean stop each log's own start is known too, and which logs there are."""
    was, now = (decode_offsets(content, place="") for content in (before, after))
    if sorted(encode_offsets(now).split()) != sorted(after.split()):
        return False
    if home.life is not Life.CLOSED:
        return True
    mark = decode_mark((home.path / MARK_NAME).read_bytes())
    assert mark is not None
    ends = {key: mark.logs[f"{key[0]}-{key[1]}"].end for key in was}
    possible = was.keys() == now.keys() and all(now[key] <= ends[key] for key in was)
    return files is not Files.LOG_STARTS and possible


def is_made_anew(home: Home, path: Path) -> bool:
    """After a power loss the next start reads each segment above the recovery point, whatever its
    indexes say."""
    points = decode_offsets((home.path / RECOVERY_POINTS).read_bytes(), place="")
    key = key_of(path.parent.name)
    after = [base for base in bases_in(path.parent) if base > base_of(path.name)]
    return key is not None and (not after or after[0] > points.get(key, 0))


def bases_in(partition: Path) -> list[int]:
    return sorted(base_of(path.name) for path in partition.glob("*.log"))


def says_the_same_of_what_is_left(files: Files, partition: Path, both: tuple[bytes, bytes]) -> bool:
    """What is compacted away nobody can ask about: only of batches that are left it matters which
    epoch they are of, and who must leave them out."""
    left = [
        header
        for path in sorted(partition.glob("*.log"))
        for header, _ in iterate_batches(memoryview(path.read_bytes()))
    ]
    if files is Files.EPOCHS:
        was, now = (decode_epochs(content, place="") for content in both)
        return all(are_of_one_epoch(was, now, one) for one in left)
    rows, now_rows = (decode_aborted(content, place="") for content in both)
    data = [one for one in left if one.is_transactional and not one.is_control]
    return have_readers_leave_out_the_same(rows, now_rows, data)


def are_of_one_epoch(was: EpochCache, now: EpochCache, batch: BatchHeader) -> bool:
    ends = (batch.base_offset, batch.last_offset)
    return all(was.epoch_at(at) == now.epoch_at(at) for at in ends)


def have_readers_leave_out_the_same(
    rows: Sequence[Aborted], now_rows: Sequence[Aborted], data: Sequence[BatchHeader]
) -> bool:
    if left_out(rows, data) != left_out(now_rows, data):
        return False
    # A reader that searches further than it must finds the same.
    stable = {row.last_offset: row.last_stable_offset for row in rows}
    return not any(
        stable.get(row.last_offset, 0) <= one.base_offset < row.last_stable_offset
        for row in now_rows
        for one in data
    )


def left_out(rows: Sequence[Aborted], data: Sequence[BatchHeader]) -> set[int]:
    """Which of these batches readers of what is committed never see."""
    return {
        one.base_offset
        for row in rows
        for one in data
        if one.producer_id == row.producer_id
        and row.first_offset <= one.base_offset <= row.last_offset
    }


def start_of(log_directory: Path, name: str) -> int:
    starts = decode_offsets((log_directory / LOG_STARTS).read_bytes(), place="")
    key = key_of(name)
    return 0 if key is None else starts.get(key, 0)


def _above(start: int, content: bytes) -> list[Aborted]:
    """What was aborted, but for how far below the log's start it began or was undecided."""
    return [
        row._replace(
            first_offset=max(row.first_offset, start),
            last_stable_offset=max(row.last_stable_offset, start),
        )
        for row in decode_aborted(content, place="")
    ]


def _from(start: int, content: bytes) -> EpochCache:
    cache = decode_epochs(content, place="")
    cache.cut_below(start)
    return cache
