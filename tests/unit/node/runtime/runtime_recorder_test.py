"""Events go to the board at once and to the log soon after, and none twice."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tidelog.kernel.ids import Incarnation, Uuid
from tidelog.node.ipc.events import RING_BYTES, EventRing, Happening, Kind, read_ring
from tidelog.node.runtime import recorder
from tidelog.node.runtime.process import EventFormatter, EventLog, LogFile
from tidelog.node.runtime.recorder import LINES_PER_TURN, Recorder

TOPIC = Uuid(bytes(range(16)))


class Bench:
    """One ring and one log, over several lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.memory = bytearray(RING_BYTES)
        self.names = {TOPIC: "orders"}

    def life(self, incarnation: int) -> Recorder:
        ring = EventRing(memoryview(self.memory))
        return Recorder(ring, EventLog("events"), Incarnation(incarnation), self.names.get)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def on_board(self) -> int:
        return len(read_ring(memoryview(self.memory)))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    path = tmp_path / "broker-1.log"
    handler = LogFile(str(path), take_output=False)
    handler.setFormatter(EventFormatter("broker-1"))
    logger = logging.getLogger("events")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    yield Bench(path)
    logger.handlers = []


def test_an_event_is_on_the_board_at_once_and_in_the_log_after_a_turn(bench: Bench) -> None:
    life = bench.life(3)
    life.record(Kind.TRUNCATED, TOPIC, 0, 120, 117, 4, 5, 0)
    assert bench.on_board() == 1
    assert bench.lines() == []
    life.turn()
    (line,) = bench.lines()
    assert line["event"] == "truncated"
    assert (line["partition"], line["from"], line["to"]) == ("orders-0", 120, 117)
    assert (line["number"], line["incarnation"]) == (1, 3)
    life.turn()
    assert len(bench.lines()) == 1


def test_a_topic_that_is_gone_is_told_by_its_id(bench: Bench) -> None:
    bench.names.clear()
    life = bench.life(3)
    life.record(Kind.TRUNCATED, TOPIC, 0, 2, 1, 4, 5, 0)
    life.turn()
    (line,) = bench.lines()
    assert line["partition"] == f"{line['topic_id']}-0"


def test_a_turn_writes_only_so_many_lines_and_an_end_all(bench: Bench) -> None:
    life = bench.life(3)
    for number in range(LINES_PER_TURN + 10):
        life.record_broker(Kind.LOST, 1, number)
    life.turn()
    assert len(bench.lines()) == LINES_PER_TURN
    life.close()
    assert [line["broker_epoch"] for line in bench.lines()] == list(range(LINES_PER_TURN + 10))


def test_what_a_killed_life_had_not_logged_its_next_life_does(bench: Bench) -> None:
    killed = bench.life(3)
    killed.record_broker(Kind.LOST, 1, 10)
    killed.turn()
    killed.record_broker(Kind.LOST, 1, 11)
    after = bench.life(4)
    after.record_broker(Kind.LOST, 1, 12)
    after.turn()
    told = [(line["incarnation"], line["broker_epoch"]) for line in bench.lines()]
    assert told == [(3, 10), (3, 11), (4, 12)]


def test_a_storm_of_events_takes_bounded_memory_and_says_what_is_missing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "WAITING_MAX", 4)
    life = bench.life(3)
    life.happened(*(Happening(Kind.LOST, TOPIC, -1, (1, number)) for number in range(7)))
    life.close()
    *events, last = bench.lines()
    assert len(events) == 4
    assert (last["event"], last["count"]) == ("events_not_logged", 3)


def test_several_events_may_be_of_one_moment(bench: Bench) -> None:
    life = bench.life(3)
    one = Happening(Kind.LOST, TOPIC, -1, (1, 2))
    life.happened(one, one, wall_ns=1_700_000_000_000_001_000)
    life.close()
    assert [line["at"] for line in bench.lines()] == ["2023-11-14T22:13:20.000001Z"] * 2
