"""The rules of crash images: stable bytes stay, a rename is one change, each fate is drawn."""

from random import Random

from tidelog.tools.chaos.crash_image import PAGE_BYTES, draw_bytes, draw_names

SEEDS = range(400)


def test_what_is_stable_is_never_touched() -> None:
    for seed in SEEDS:
        rng = Random(seed)
        stable = rng.randrange(5 * PAGE_BYTES)
        fate = draw_bytes(stable, stable + rng.randrange(5 * PAGE_BYTES), rng)
        assert fate.size >= stable
        for start, first in fate.torn.items():
            assert start % PAGE_BYTES == 0
            assert max(start, stable) <= first <= min(start + PAGE_BYTES, fate.size)


def test_every_fate_comes_true() -> None:
    stable, size = 100, 3 * PAGE_BYTES
    drawn = [draw_bytes(stable, size, Random(seed)) for seed in SEEDS]
    sizes = {fate.size for fate in drawn}
    assert {stable, size} < sizes
    assert {fate.old_tail for fate in drawn} == {False, True}
    firsts = {(start, first) for fate in drawn for start, first in fate.torn.items()}
    assert (0, stable) in firsts, "a page is lost"
    assert any(PAGE_BYTES < first < 2 * PAGE_BYTES for _, first in firsts), "a page is torn"
    assert any(not fate.torn and stable < fate.size < size for fate in drawn), "only the end goes"


def test_a_name_that_was_synced_stays() -> None:
    for seed in SEEDS:
        assert draw_names({"a": 1, "b": 2}, {"a": 1, "c": 3}, Random(seed))["a"] == 1


def test_a_file_is_never_lost_between_two_names_and_has_never_both() -> None:
    durable, now = {"old": 1, "replaced": 2}, {"replaced": 1}
    drawn = [draw_names(durable, now, Random(seed)) for seed in SEEDS]
    assert all(list(names.values()).count(1) == 1 for names in drawn)
    assert {"old": 1, "replaced": 2} in drawn, "undone"
    assert {"replaced": 1} in drawn, "done"
