"""A log that a client can write to without end holds a few lines, and says how many it left out."""

from random import Random

import pytest

from tidelog.node.few_lines import LINES_MAX, SPAN_MS, FewLines


def test_the_first_lines_of_a_span_are_said_and_the_others_counted() -> None:
    lines = FewLines()
    assert [lines.may_say(7) for _ in range(LINES_MAX + 5)] == [True] * LINES_MAX + [False] * 5
    assert lines.left_out(7 + SPAN_MS - 1) == 0, "more may follow"
    assert lines.left_out(7 + SPAN_MS) == 5
    assert lines.left_out(7 + SPAN_MS) == 0, "they are told once"


def test_a_new_span_begins_with_its_first_line() -> None:
    lines = FewLines()
    for _ in range(LINES_MAX + 1):
        lines.may_say(0)
    assert lines.may_say(SPAN_MS)
    assert lines.left_out(SPAN_MS) == 0
    assert lines.left_out(2 * SPAN_MS) == 1


@pytest.mark.parametrize("seed", range(20))
def test_every_event_is_said_or_counted(seed: int) -> None:
    rng, lines = Random(seed), FewLines()
    now_ms = said = counted = asked = 0
    for _ in range(500):
        now_ms += rng.choice([0, 0, 0, 1, SPAN_MS // 3, SPAN_MS])
        if rng.random() < 0.9:
            asked += 1
            said += lines.may_say(now_ms)
        else:
            counted += lines.left_out(now_ms)
    counted += lines.left_out(now_ms + SPAN_MS)
    assert said + counted == asked
    assert said <= LINES_MAX * (now_ms // SPAN_MS + 1)
