"""A log that lost its first segments to a power loss: that is not forgotten before it is mended."""

import pytest

from harness.logs.batches import values_of
from harness.logs.one_log import Broker, robbed
from tidelog.kernel.ids import Partition


def test_what_is_missing_at_the_front_is_known() -> None:
    _, log = robbed()
    assert (log.start, log.end, log.missing_from) == (10, 24, 0)


def test_a_kill_does_not_make_it_forgotten() -> None:
    broker, _ = robbed()
    for _ in range(3):
        broker.checkpoint()
        broker.kill()
        log = broker.restart()
        assert (log.start, log.end, log.missing_from) == (10, 24, 0)


def test_a_clean_stop_does_not_make_it_forgotten() -> None:
    broker, _ = robbed()
    for _ in range(2):
        broker.logs.close_clean({})
        broker.kill()
        log = broker.restart()
        assert (log.start, log.end, log.missing_from) == (10, 24, 0)
        assert values_of(log) == list(range(10, 24))


def test_a_cut_below_what_is_left_does_not_make_it_forgotten() -> None:
    broker, log = robbed()
    log.truncate_to(5)
    assert (log.start, log.end, log.missing_from) == (5, 5, 0)
    broker.kill()
    log = broker.restart()
    assert (log.start, log.end, log.missing_from) == (5, 5, 0)


@pytest.mark.parametrize("stop", ["kill", "clean"])
def test_a_log_that_begins_anew_lacks_nothing(stop: str) -> None:
    broker, log = robbed()
    log.truncate_fully_and_start_at(0)
    assert (log.start, log.end, log.missing_from) == (0, 0, None)
    if stop == "clean":
        broker.logs.close_clean({})
    broker.kill()
    log = broker.restart()
    assert (log.start, log.end, log.missing_from) == (0, 0, None)


@pytest.mark.parametrize("stop", ["kill", "clean"])
def test_where_nobody_has_more_nothing_is_missing(stop: str) -> None:
    """Its leader begins no earlier: that is so for good as soon as the start is durable."""
    broker, log = robbed()
    log.accept_start()
    log.keep_start()
    assert (log.start, log.missing_from) == (10, None)
    if stop == "clean":
        broker.logs.close_clean({})
    broker.kill()
    log = broker.restart()
    assert (log.start, log.end, log.missing_from) == (10, 24, None)


def test_what_is_missing_is_not_forgotten_by_making_the_start_durable() -> None:
    broker, log = robbed()
    log.keep_start()
    broker.kill()
    log = broker.restart()
    assert (log.start, log.end, log.missing_from) == (10, 24, 0)


def test_what_is_deleted_is_not_missing() -> None:
    broker, log = robbed()
    broker.logs.plan_starts({("t", Partition(0)): 12})
    broker.checkpoint()
    log.advance_start(12)
    broker.kill()
    log = broker.restart()
    assert (log.start, log.end, log.missing_from) == (12, 24, None)


def test_a_log_that_begins_later_lacks_nothing_though_it_is_killed_at_once() -> None:
    broker = Broker(2)
    log = broker.logs.log("t", 0)
    assert log is not None
    log.truncate_fully_and_start_at(50)
    broker.kill()
    log = broker.restart()
    assert (log.start, log.end, log.missing_from) == (50, 50, None)


def test_where_what_is_left_begins_is_not_written_down_as_committed() -> None:
    broker, log = robbed()
    key = ("t", Partition(0))
    assert broker.logs.high_watermark("t", 0) == 10, "none lies below the start"
    broker.checkpoint({key: 10})
    assert broker.logs.checkpointed_high_watermark(key) == 0
    log.accept_start()
    broker.checkpoint({key: 10})
    assert broker.logs.checkpointed_high_watermark(key) == 10
