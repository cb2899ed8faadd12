"""What a disk does to bytes: it changes what it says, where it is told, by the seed alone."""

from random import Random

import pytest

from tidelog.tools.chaos.crash_image import PAGE_BYTES
from tidelog.tools.chaos.damage import How, NoDamageError, Within, draw_damage

CONTENT = Random(1).randbytes(3 * PAGE_BYTES + 100)
EVERYWHERE = Within(0, len(CONTENT))
SEEDS = range(100)


@pytest.mark.parametrize("how", How)
def test_a_seed_damages_the_same_bytes_the_same(how: How) -> None:
    drawn = [draw_damage(CONTENT, how, EVERYWHERE, Random(seed)) for seed in SEEDS]
    assert drawn == [draw_damage(CONTENT, how, EVERYWHERE, Random(seed)) for seed in SEEDS]
    assert len({damage.position for damage in drawn}) > 2


def test_a_bit_is_flipped_where_it_is_told() -> None:
    for seed in SEEDS:
        damage = draw_damage(CONTENT, How.BIT_FLIP, Within(50, 60), Random(seed))
        after = damage.of(CONTENT)
        (at,) = (n for n, (old, new) in enumerate(zip(CONTENT, after, strict=True)) if old != new)
        assert 50 <= at < 60
        assert (CONTENT[at] ^ after[at]).bit_count() == 1


@pytest.mark.parametrize("at", [0, PAGE_BYTES + 7, 3 * PAGE_BYTES + 99])
def test_a_page_is_lost_with_all_that_is_in_it(at: int) -> None:
    damage = draw_damage(CONTENT, How.ZERO_PAGE, Within(at, at + 1), Random(1))
    page = at // PAGE_BYTES * PAGE_BYTES
    after = damage.of(CONTENT)
    rest = min(PAGE_BYTES, len(CONTENT) - page)
    assert after == CONTENT[:page] + bytes(rest) + CONTENT[page + rest :]


def test_a_stray_page_is_another_one_of_the_file() -> None:
    pages = {CONTENT[start : start + PAGE_BYTES] for start in range(0, len(CONTENT), PAGE_BYTES)}
    for seed in SEEDS:
        damage = draw_damage(CONTENT, How.STRAY_PAGE, Within(0, PAGE_BYTES), Random(seed))
        assert damage.old == CONTENT[:PAGE_BYTES]
        assert len(damage.of(CONTENT)) == len(CONTENT)
        assert any(damage.new.startswith(page) for page in pages - {damage.old})


def test_a_file_is_never_cut_where_it_would_be_whole() -> None:
    for seed in SEEDS:
        damage = draw_damage(CONTENT, How.TRUNCATE, Within(10, 13, {10, 12}), Random(seed))
        assert damage.of(CONTENT) == CONTENT[:11]
    with pytest.raises(NoDamageError, match="only shorter"):
        draw_damage(CONTENT, How.TRUNCATE, Within(10, 11, {10}), Random(1))


@pytest.mark.parametrize(
    ("content", "how", "why"),
    [
        (b"", How.BIT_FLIP, "the file is empty"),
        (bytes(PAGE_BYTES), How.ZERO_PAGE, "would be the same"),
        (bytes(2 * PAGE_BYTES), How.STRAY_PAGE, "would be the same"),
        (bytes(PAGE_BYTES), How.STRAY_PAGE, "no other page"),
    ],
)
def test_what_would_change_nothing_is_refused(content: bytes, how: How, why: str) -> None:
    with pytest.raises(NoDamageError, match=why):
        draw_damage(content, how, Within(0, len(content)), Random(1))
