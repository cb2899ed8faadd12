"""Fetch sessions: bounded, in order, and strict about epochs."""

import random

import pytest

from tidelog.kernel import limits
from tidelog.kernel.ids import ZERO_UUID
from tidelog.kernel.instant import Instant, s
from tidelog.node.api.fetch_sessions import FetchSession, FetchSessions, Want
from tidelog.wire.errors import ErrorCode, Rejected

NOW = Instant(s(1000))


def want(topic: str, partition: int = 0, offset: int = 0) -> Want:
    one = Want(topic, ZERO_UUID, partition)
    one.fetch_offset = offset
    return one


def sessions(slots: int = 10) -> FetchSessions:
    return FetchSessions(slots, random.Random(7))


def made(all_sessions: FetchSessions, *wants: Want, now: Instant = NOW) -> FetchSession:
    session = all_sessions.create(now, list(wants), by_id=False)
    assert session is not None
    return session


def refusal(all_sessions: FetchSessions, number: int, epoch: int, *, by_id: bool) -> ErrorCode:
    with pytest.raises(Rejected) as refused:
        all_sessions.continued(NOW, number, epoch, by_id=by_id)
    return refused.value.code


def test_a_session_goes_on_only_with_its_number_and_next_epoch() -> None:
    every = sessions()
    session = made(every, want("a"))
    assert session.number > 0
    assert every.continued(NOW, session.number, 1, by_id=False) is session
    wrong = refusal(every, session.number + 1, 1, by_id=False)
    assert wrong is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    wrong = refusal(every, session.number, 2, by_id=False)
    assert wrong is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    wrong = refusal(every, session.number, 1, by_id=True)
    assert wrong is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_epoch_after_the_largest_is_one() -> None:
    session = made(sessions(), want("a"))
    session.epoch = 2**31 - 1
    session.next_epoch()
    assert session.epoch == 1


def test_what_a_request_does_not_name_stays_as_it_was() -> None:
    session = made(sessions(), want("a", 0, 5), want("b", 0, 6))
    session.update([want("a", 0, 50)], [])
    assert [(w.topic, w.fetch_offset) for w in session.wants.values()] == [("a", 50), ("b", 6)]


def test_what_is_forgotten_is_gone_and_may_come_back_in_the_same_request() -> None:
    session = made(sessions(), want("a"), want("b"))
    session.wants["a", 0].told_high_watermark = 9
    session.update([want("a")], [("a", 0), ("b", 0), ("never-there", 3)])
    assert [w.topic for w in session.wants.values()] == ["a"]
    assert session.wants["a", 0].told_high_watermark == -1


def test_who_got_bytes_comes_last_next_time() -> None:
    session = made(sessions(), want("a"), want("b"), want("c"))
    session.served(session.wants["a", 0])
    assert [w.topic for w in session.wants.values()] == ["b", "c", "a"]


def test_without_room_a_larger_session_turns_out_a_smaller_one() -> None:
    every = sessions(slots=2)
    small = made(every, want("a"))
    large = made(every, want("a"), want("b"), want("c"))
    made(every, want("a"), want("b"))
    assert len(every) == 2
    assert refusal(every, small.number, 1, by_id=False) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert every.continued(NOW, large.number, 1, by_id=False) is large


def test_without_room_a_session_no_larger_than_all_others_gets_none() -> None:
    every = sessions(slots=1)
    made(every, want("a"))
    assert every.create(NOW, [want("b")], by_id=False) is None
    assert len(every) == 1


def test_a_session_unused_for_two_minutes_makes_room_for_any() -> None:
    every = sessions(slots=1)
    made(every, want("a"), want("b"))
    later = Instant(NOW + s(121))
    assert every.create(later, [want("c")], by_id=False) is not None
    assert len(every) == 1


def test_no_slots_means_no_sessions() -> None:
    assert sessions(slots=0).create(NOW, [want("a")], by_id=False) is None


def test_a_flood_of_sessions_never_holds_more_than_the_slots() -> None:
    every = sessions(slots=5)
    for size in range(1, 100):
        every.create(NOW, [want("t", p) for p in range(size)], by_id=False)
        assert len(every) <= 5
    assert every.evicted > 0


def test_no_session_and_not_all_together_hold_more_partitions_than_the_limits() -> None:
    every = sessions(slots=100)
    most = limits.FETCH_SESSION_PARTITIONS_MAX
    whole = limits.FETCH_SESSIONS_PARTITIONS_MAX // most
    too_wide = [want("x", number) for number in range(most + 1)]
    assert every.create(NOW, too_wide, by_id=False) is None
    first = made(every, *(want("t0", number) for number in range(most)))
    for at in range(1, whole):
        made(every, *(want(f"t{at}", number) for number in range(most)))
    assert every.partitions == limits.FETCH_SESSIONS_PARTITIONS_MAX
    assert every.create(NOW, [want("more")], by_id=False) is None
    with pytest.raises(Rejected):
        every.update(first, [want("more")], [])
    assert every.partitions == limits.FETCH_SESSIONS_PARTITIONS_MAX - most
    later = Instant(NOW + s(121))
    assert every.create(later, too_wide[:most], by_id=False) is not None
    assert every.create(later, [want("more")], by_id=False) is not None
