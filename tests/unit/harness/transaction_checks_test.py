"""The checks of what logs and readers say of transactions, and that each of them can fail."""

import struct

import pytest

from harness.processes.transaction_checks import (
    numbers_of,
    told_by,
    wrong_counts,
    wrong_numbers,
    wrong_transactions,
)
from tidelog.wire.records import CONTROL_BIT, TRANSACTIONAL_BIT, Origin, Record, build_batch

PRODUCER = 7
COUNT = 4


class Logs:
    """Two output topics of one partition each, written a batch at a time."""

    def __init__(self) -> None:
        self.bytes = {"a-0": b"", "b-0": b""}
        self._next = dict.fromkeys(self.bytes, 0)

    def data(self, place: str, *numbers: int, key: bytes = b"one", epoch: int = 0) -> None:
        at = self._next[place]
        records = [Record(at + n, 0, key, b"%d" % one) for n, one in enumerate(numbers)]
        self._add(place, records, Origin(PRODUCER, epoch, 0, TRANSACTIONAL_BIT))

    def end(self, place: str, *, commit: bool = True, epoch: int = 0, coordinator: int = 1) -> None:
        key, value = struct.pack(">hh", 0, commit), struct.pack(">hi", 0, coordinator)
        flags = TRANSACTIONAL_BIT | CONTROL_BIT
        record = Record(self._next[place], 0, key, value)
        self._add(place, [record], Origin(PRODUCER, epoch, -1, flags))

    def _add(self, place: str, records: list[Record], origin: Origin) -> None:
        self.bytes[place] += build_batch(records, origin=origin)
        self._next[place] = records[-1].offset + 1

    def wrong(self, *, bumps: bool = False) -> list[str]:
        told = told_by(self.bytes)
        wrong = wrong_transactions(told, bumps=bumps)
        for topic in ("a", "b"):
            wrong += wrong_numbers(topic, numbers_of(told, topic), COUNT)
        return wrong


@pytest.fixture
def logs() -> Logs:
    """Two transactions that were committed, and before them one that was aborted."""
    logs = Logs()
    for place in logs.bytes:
        logs.data(place, 0, 1, key=b"none")
        logs.end(place, commit=False)
        logs.data(place, 0, 1)
        logs.end(place)
        logs.data(place, 2, 3, key=b"two", epoch=1)
        logs.end(place, epoch=1, coordinator=2)
    return logs


def test_each_input_once_in_ended_transactions_is_right(logs: Logs) -> None:
    assert logs.wrong() == []


def test_an_output_that_is_there_twice_is_found(logs: Logs) -> None:
    logs.data("a-0", 3, key=b"again", epoch=1)
    logs.end("a-0", epoch=1, coordinator=2)
    assert logs.wrong() == ["a: 1 are there twice, such as [3]"]


def test_an_output_that_is_lost_is_found() -> None:
    logs = Logs()
    logs.data("a-0", 0, 1, 2, 3)
    logs.end("a-0")
    logs.data("b-0", 0, 1, 3)
    logs.end("b-0")
    assert logs.wrong() == ["b: 1 are lost, such as [2]"]


def test_an_output_of_an_aborted_transaction_is_lost() -> None:
    logs = Logs()
    for place in logs.bytes:
        logs.data(place, 0, 1, 2, 3)
        logs.end(place, commit=False)
    assert logs.wrong() == [f"{one}: 4 are lost, such as [0, 1, 2, 3]" for one in ("a", "b")]


def test_a_transaction_that_is_torn_is_found(logs: Logs) -> None:
    for place, commit in (("a-0", True), ("b-0", False)):
        logs.data(place, 0, key=b"torn", epoch=1)
        logs.end(place, commit=commit, epoch=1, coordinator=2)
    assert logs.wrong() == ["T1: b'torn' has both outcomes", "a: 1 are there twice, such as [0]"]


def test_two_outcomes_of_one_epoch_are_found_where_each_end_raises_it(logs: Logs) -> None:
    assert "T1: ('a-0', 7, 0) ended twice" in logs.wrong(bumps=True)
    assert "T1: (7, 0) has both outcomes" in logs.wrong(bumps=True)


def test_a_marker_that_is_there_twice_is_found(logs: Logs) -> None:
    logs.end("a-0", epoch=1, coordinator=2)
    assert logs.wrong() == ["a-0: T1: the marker at 9 commits nothing"]
    logs.end("b-0", epoch=2, coordinator=2, commit=False)
    logs.end("b-0", epoch=2, coordinator=2, commit=False)
    assert "b-0: T1: the marker at 10 is there twice, also at 9" in logs.wrong()


def test_an_abort_where_nothing_was_written_yet_is_right(logs: Logs) -> None:
    logs.end("a-0", epoch=2, coordinator=2, commit=False)
    assert logs.wrong() == []


def test_a_transaction_without_end_is_found(logs: Logs) -> None:
    logs.data("b-0", 9, key=b"late", epoch=1)
    assert logs.wrong() == ["b-0: T4: the transaction of 7 at 9 stays open"]


def test_a_write_after_the_end_of_its_epoch_is_found(logs: Logs) -> None:
    logs.data("a-0", 9, key=b"late")
    logs.end("a-0", commit=False, epoch=2, coordinator=2)
    assert logs.wrong() == ["a-0: T4: 9 is of epoch 0 of 7, after the end of 1 at 8"]


def test_a_marker_of_the_past_is_found(logs: Logs) -> None:
    logs.end("a-0", commit=False, coordinator=1)
    older, past = logs.wrong()
    assert "of an older epoch" in older
    assert "of an older coordinator" in past


@pytest.mark.parametrize(
    ("counted", "is_right"),
    [((1, 2, 3), True), ((1, 2, 2, 3), False), ((1, 3), False), ((1, 2), False), ((), False)],
)
def test_a_counter_that_missed_one_or_took_one_twice_is_found(
    counted: tuple[int, ...], *, is_right: bool
) -> None:
    values = [number.to_bytes(8, "big") for number in counted]
    records = [Record(at, 0, b"key", value) for at, value in enumerate(values)]
    log = bytes(build_batch(records)) if records else b""
    wrong = list(wrong_counts(told_by({"count-changelog-0": log}), "count-changelog", 3))
    assert (wrong == []) is is_right
