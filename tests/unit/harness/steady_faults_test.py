"""The comparison of what a client was told with what is in the log sees every kind of fault."""

import pytest

from harness.clients.steady import ACKED_MIN, PARTITIONS, Outcome, faults


def sound() -> tuple[Outcome, list[list[int]]]:
    logs = [list(range(partition, ACKED_MIN, PARTITIONS)) for partition in range(PARTITIONS)]
    return Outcome(list(range(ACKED_MIN)), [], {n: list(log) for n, log in enumerate(logs)}), logs


def test_what_is_there_once_in_order_and_was_read_is_sound() -> None:
    outcome, logs = sound()
    assert faults(outcome, logs) == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("lost", "partition 1: 1 lost, the first is 4"),
        ("twice", "partition 1: 1 twice"),
        ("swapped", "partition 1: out of order"),
        ("unread", "partition 1: read were 32, there are 33"),
        ("refused", "refused: no"),
        ("idle", "only 99 numbers were acknowledged"),
    ],
)
def test_each_fault_is_said(fault: str, said: str) -> None:
    outcome, logs = sound()
    log = logs[1]
    match fault:
        case "lost":
            log.remove(4)
        case "twice":
            log.insert(2, log[1])
        case "swapped":
            log[0], log[1] = log[1], log[0]
        case "unread":
            outcome.read[1].pop()
        case "refused":
            outcome.refused.append("no")
        case "idle":
            outcome.acked.pop()
        case _:
            raise AssertionError(fault)
    assert said in faults(outcome, logs)
