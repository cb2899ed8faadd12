"""Stories of groups reach the log in the turn in which they were told, or soon after a storm."""

import asyncio
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.kernel.ids import Incarnation
from tidelog.node.groups.history import Chapter, Told
from tidelog.node.runtime.process import EventFormatter, EventLog, LogFile
from tidelog.node.runtime.stories import LINES_PER_TURN, WAITING_MAX, Stories


class Bench:
    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self.path = path
        self.loop = loop
        self.stories = Stories(loop, EventLog("stories"), Incarnation(7))

    def tell(self, count: int = 1) -> None:
        for number in range(count):
            self.stories.tell(Told(Chapter.BEGAN, "billing", {"generation": number}))

    def turn(self) -> None:
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "broker-1.log"
    handler = LogFile(str(path), take_output=False)
    handler.setFormatter(EventFormatter("broker-1"))
    logger = logging.getLogger("stories")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    loop = asyncio.new_event_loop()
    yield Bench(path, loop)
    loop.close()
    logger.handlers = []


def test_what_is_told_is_written_after_this_turn(bench: Bench) -> None:
    bench.tell(2)
    assert bench.lines() == []
    bench.turn()
    first, second = bench.lines()
    assert (first["event"], first["group"]) == ("group_rebalance_began", "billing")
    assert (first["number"], second["number"], first["incarnation"]) == (1, 2, 7)
    assert first["at"] <= second["at"]
    bench.tell()
    bench.turn()
    assert len(bench.lines()) == 3


def test_a_storm_is_written_over_several_turns(bench: Bench) -> None:
    bench.tell(2 * LINES_PER_TURN + 1)
    for turns in (1, 2, 3):
        bench.turn()
        assert len(bench.lines()) == min(turns * LINES_PER_TURN, 2 * LINES_PER_TURN + 1)
    assert [line["generation"] for line in bench.lines()] == list(range(2 * LINES_PER_TURN + 1))


def test_what_is_too_much_is_counted(bench: Bench) -> None:
    bench.tell(WAITING_MAX + 5)
    for _ in range(WAITING_MAX // LINES_PER_TURN + 1):
        bench.turn()
    assert bench.lines()[-1]["event"] == "group_stories_not_logged"
    assert bench.lines()[-1]["count"] == 5


def test_the_rest_is_written_at_the_end(bench: Bench) -> None:
    bench.tell(3 * LINES_PER_TURN)
    bench.stories.close()
    assert len(bench.lines()) == 3 * LINES_PER_TURN
    bench.turn()
    assert len(bench.lines()) == 3 * LINES_PER_TURN
