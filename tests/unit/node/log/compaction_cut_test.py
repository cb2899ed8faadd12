"""A compacted log whose end is cut off: below a hole, and while a pass puts its work in force."""

import errno
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from harness.disks.few_descriptors import FewDescriptors
from harness.disks.mortal_disk import KilledError, MortalDisk, after_calls
from harness.logs.batches import NOW_MS, TOPIC_ID, flush, open_logs
from harness.logs.compaction import append, batches_of, compact, records_of
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings

SETTINGS = LogSettings(compact=True, delete=False, segment_bytes=100_000)


WRITTEN = [(offset, key, b"%d" % (1 + offset // 2)) for offset, key in enumerate([b"a", b"b"] * 3)]


class Place:
    """A log of three sealed segments, the first two of which a pass makes one."""

    def __init__(self) -> None:
        self.disk = MortalDisk()
        self.logs = open_logs(self.disk.directory(), settings=SETTINGS)
        self.log = self.logs.create("t", 0, TOPIC_ID, SETTINGS)
        for value in (b"1", b"2", b"3"):
            append(self.log, [(b"a", value), (b"b", value)])
            self.log.roll(NOW_MS)
        flush(self.log)

    def start_again(self, *, power: bool, rng: Random | None = None) -> Log:
        if power:
            self.disk.lose_power(rng)
        else:
            self.disk.kill()
        logs: LogDirectory = open_logs(
            self.disk.directory(), boot_id="boot-2" if power else "boot-1"
        )
        found = logs.log("t", 0)
        assert found is not None
        return found


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize(("offset", "end"), [(2, 0), (4, 0), (5, 0), (6, 6), (7, 7)])
def test_a_cut_behind_a_hole_ends_the_log_before_it(offset: int, end: int, *, power: bool) -> None:
    """A follower would else miss what its leader has in the hole, and a start call it damage."""
    place = Place()
    append(place.log, [(b"c", b"1")])
    append(place.log, [(b"c", b"2")])
    flush(place.log)
    compact(place.logs, place.log)
    assert [header.base_offset for header, _ in batches_of(place.log)] == [4, 6, 7]
    assert place.log.truncate_to(offset) == end
    assert place.start_again(power=power).end == end


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("goes_on", [False, True], ids=["at once", "after the pass"])
@pytest.mark.parametrize("cut_after", range(4))
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_what_a_cut_took_never_comes_back_from_a_pass(
    offset: int, cut_after: int, *, goes_on: bool, power: bool
) -> None:
    """The cut comes between any two steps by which the pass is put in force, and then a crash."""
    place = Place()
    log, steps = place.log, 0

    def cut() -> None:
        log.truncate_to(offset)
        append(log, [(b"new", b"4")])
        if not goes_on:
            raise KilledError

    def on_loop(call: Callable[[], Any]) -> Any:
        nonlocal steps
        if steps == cut_after:
            cut()
        steps += 1
        return call()

    with suppress(KilledError):
        compact(place.logs, log, on_loop=on_loop)
        if steps == cut_after:
            cut()
    end = log.end - 1
    found = place.start_again(power=power)
    rows = records_of(found)
    assert [row for row in rows if row.offset >= end and row.key != b"new"] == []
    assert found.end <= end + 1
    assert power or (b"new", b"4") in [(row.key, row.value) for row in rows]


@pytest.mark.parametrize("cut_after", [1, 2, 3], ids=["begun", "taken", "finished"])
@pytest.mark.parametrize("calls", range(16))
def test_a_power_loss_within_such_a_cut_leaves_one_of_the_histories(
    calls: int, cut_after: int
) -> None:
    for draw in range(20):
        found = cut_dying(cut_after, calls).start_again(power=True, rng=Random(draw))
        rows = [(row.offset, row.key, row.value) for row in records_of(found)]
        assert set(rows) <= set(WRITTEN)
        last = {key: value for _, key, value in rows}
        assert len(set(last.values())) <= 1, "both keys are as they were at some moment"


def cut_dying(cut_after: int, calls: int) -> Place:
    """A cut between two steps of a pass, killed after so many calls."""
    place, steps = Place(), 0

    def on_loop(call: Callable[[], Any]) -> Any:
        nonlocal steps
        if steps == cut_after:
            place.disk.trap = after_calls(calls)
            place.log.truncate_to(3)
            raise KilledError
        steps += 1
        return call()

    with suppress(KilledError):
        compact(place.logs, place.log, on_loop=on_loop)
        place.disk.trap = after_calls(calls)
        place.log.truncate_to(3)
    place.disk.trap = None
    return place


def test_a_pass_over_a_log_that_was_cut_and_grew_again_is_not_put_in_force() -> None:
    """Its segments begin where they did, but hold another history."""
    place = Place()
    log = place.log

    def on_loop(call: Callable[[], Any]) -> Any:
        if log.cuts == 0:
            log.truncate_to(2)
            for value in (b"4", b"5"):
                append(log, [(b"a", value), (b"b", value)])
                log.roll(NOW_MS)
            flush(log)
        return call()

    compact(place.logs, log, on_loop=on_loop)
    rows = {row.key: row.value for row in records_of(log)}
    assert rows == {b"a": b"5", b"b": b"5"}
    assert len(records_of(log)) == 6, "nothing was replaced"


def test_a_pass_whose_file_was_taken_away_is_not_put_in_force() -> None:
    place = Place()
    log = place.log

    def on_loop(call: Callable[[], Any]) -> Any:
        log.directory.unlink(f"{0:020d}.log.cleaned")
        return call()

    compact(place.logs, log, on_loop=on_loop)
    assert len(records_of(log)) == len(WRITTEN)


@pytest.mark.parametrize("steps_done", [1, 2], ids=["begun", "taken"])
def test_the_next_pass_ends_what_a_lack_of_descriptors_interrupted(
    monkeypatch: pytest.MonkeyPatch, steps_done: int
) -> None:
    """The compacted segment may be in use under its `.swap` name, which a pass removes."""
    place, steps = Place(), 0
    log = place.log

    def no_descriptor() -> None:
        raise OSError(errno.EMFILE, "too many open files")

    def on_loop(call: Callable[[], Any]) -> Any:
        nonlocal steps
        steps += 1
        result = call()
        if steps == steps_done:
            monkeypatch.setattr(log.directory, "sync", no_descriptor)
        return result

    with pytest.raises(OSError, match="too many open files"):
        compact(place.logs, log, on_loop=on_loop)
    monkeypatch.undo()
    append(log, [(b"c", b"1")])
    log.roll(NOW_MS)
    flush(log)
    compact(place.logs, log)
    last = {row.key: row.value for row in records_of(log)}
    assert last == {b"a": b"3", b"b": b"3", b"c": b"1"}
    log.truncate_to(5)
    place.start_again(power=False)


@pytest.mark.parametrize("step", [0, 1])
def test_nothing_is_left_of_a_pass_that_retention_overtook(step: int) -> None:
    place = Place()
    log, steps = place.log, 0

    def on_loop(call: Callable[[], Any]) -> Any:
        nonlocal steps
        if steps == step:
            log.advance_start(2)
        steps += 1
        return call()

    compact(place.logs, log, on_loop=on_loop)
    names = log.directory.names()
    assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
    assert [row.offset for row in records_of(log)] == [2, 3, 4, 5]


def test_a_hole_that_a_power_loss_made_is_not_taken_for_one_of_compaction() -> None:
    """A follower would never fetch what is missing there, and might lead some day."""
    place = Place()
    log = place.log
    compact(place.logs, log)
    append(log, [(b"c", b"1")])
    append(log, [(b"d", b"1")])
    log.roll(NOW_MS)
    append(log, [(b"e", b"1")])
    sealed, active = log.segments[-2:]
    file = log.directory.open(sealed.name)
    file.truncate(sealed.locate(7))
    for name in (sealed.name, active.name):
        log.directory.syncable(name).sync()
    log.directory.sync()
    found = place.start_again(power=True)
    assert (found.end, [row.offset for row in records_of(found)]) == (7, [4, 5, 6])


def test_gaps_of_a_second_pass_outlive_a_power_loss_before_its_checkpoint() -> None:
    place = Place()
    log = place.log
    compact(place.logs, log)
    for value in (b"4", b"5"):
        append(log, [(b"a", value)])
        log.roll(NOW_MS)
    append(log, [(b"z", b"1")])
    log.roll(NOW_MS)
    flush(log)
    before = records_of(log)

    def finish(call: Callable[[], Any]) -> Any:
        result = call()
        if result is None:  # the swap was finished
            raise KilledError
        return result

    with suppress(KilledError):
        compact(place.logs, log, on_loop=finish)
    found = place.start_again(power=True)
    last = {row.key: row.value for row in before}
    assert {row.key: row.value for row in records_of(found)} == last


@pytest.mark.parametrize(("steps_done", "syncs"), [(1, 0), (2, 1)], ids=["begun", "taken"])
def test_an_end_of_a_pass_that_lacked_a_descriptor_is_made_durable_by_the_next_attempt(
    monkeypatch: pytest.MonkeyPatch, steps_done: int, syncs: int
) -> None:
    """Until its names are durable, a power loss leaves a `.swap` file that a start believes."""
    place, steps = Place(), 0
    log = place.log

    def on_loop(call: Callable[[], Any]) -> Any:
        nonlocal steps
        if steps == steps_done:
            with monkeypatch.context() as patch:
                patch.setattr(log.directory, "sync", FewDescriptors(syncs, log.directory.sync))
                with pytest.raises(OSError, match="too many open files"):
                    log.settle_swap()
            log.settle_swap()
            raise KilledError
        steps += 1
        return call()

    with suppress(KilledError):
        compact(place.logs, log, on_loop=on_loop)
    place.disk.lose_power()
    names = place.disk.directory().directory("t-0").names()
    assert [name for name in names if name.endswith(".log.swap")] == []


@pytest.mark.parametrize("cut_after", [1, 2, 3], ids=["begun", "taken", "finished"])
@pytest.mark.parametrize("number", range(4))
def test_a_cut_that_lacked_a_descriptor_is_as_durable_as_any_when_it_is_repeated(
    monkeypatch: pytest.MonkeyPatch, number: int, cut_after: int
) -> None:
    """Old records that came back under newer ones would not be told from the leader's."""
    for draw in range(20):
        place = cut_without_descriptors(monkeypatch, number, cut_after)
        append(place.log, [(b"new", b"4")])
        rows = records_of(place.start_again(power=True, rng=Random(draw)))
        assert [row for row in rows if row.offset >= 3 and row.key != b"new"] == []


def cut_without_descriptors(monkeypatch: pytest.MonkeyPatch, number: int, cut_after: int) -> Place:
    place, steps = Place(), 0
    log = place.log

    def cut() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(log.directory, "sync", FewDescriptors(number, log.directory.sync))
            with suppress(OSError):
                log.truncate_to(3)
        log.truncate_to(3)

    def on_loop(call: Callable[[], Any]) -> Any:
        nonlocal steps
        if steps == cut_after:
            cut()
            raise KilledError
        steps += 1
        return call()

    with suppress(KilledError):
        compact(place.logs, log, on_loop=on_loop)
        cut()
    return place


@pytest.mark.parametrize("offset", [2, 4])
def test_a_cut_that_lacked_a_descriptor_is_durable_before_an_append_behind_a_new_start(
    monkeypatch: pytest.MonkeyPatch, offset: int
) -> None:
    """The new start writes the epochs. That does not pass for the sync that the cut still owes."""
    for draw in range(20):
        place = Place()
        log = place.log
        with monkeypatch.context() as patch:
            patch.setattr(log.directory, "syncable", no_descriptor)
            with pytest.raises(OSError, match="too many open files"):
                log.truncate_to(offset)
        end = log.end
        log.advance_start(1)
        append(log, [(b"new", b"4")])
        rows = records_of(place.start_again(power=True, rng=Random(draw)))
        assert [row for row in rows if row.offset >= end and row.key != b"new"] == []


def no_descriptor(_name: str) -> None:
    raise OSError(errno.EMFILE, "too many open files")
