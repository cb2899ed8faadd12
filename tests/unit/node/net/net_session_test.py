"""The order of a connection: answers leave as requests came."""

import pytest

from tidelog.kernel import limits
from tidelog.node.net.session import OFFSET_COMMIT, Session


def test_answers_leave_in_the_order_of_requests_however_they_come() -> None:
    session = Session()
    first, second, third = (session.begin(barrier=False) for _ in range(3))
    third.pieces = [b"3"]
    second.pieces = [b"2"]
    assert session.ready() == []
    first.pieces = [b"1"]
    assert session.ready() == [b"1", b"2", b"3"]
    assert session.in_flight == 0


def test_a_request_that_wants_no_answer_keeps_its_place_and_sends_nothing() -> None:
    session = Session()
    silent, loud = session.begin(barrier=False), session.begin(barrier=False)
    loud.pieces = [b"x"]
    assert session.ready() == []
    silent.pieces = []
    assert session.ready() == [b"x"]


def test_nothing_begins_behind_a_barrier_before_it_is_answered() -> None:
    session = Session()
    barrier = session.begin(barrier=True)
    assert not session.may_begin(barrier=False)
    barrier.pieces = [b""]
    session.ready()
    assert session.may_begin(barrier=True)


def test_a_barrier_waits_for_the_produces_before_it() -> None:
    session = Session()
    produce = session.begin(barrier=False)
    assert session.may_begin(barrier=False)
    assert not session.may_begin(barrier=True)
    produce.pieces = []
    session.ready()
    assert session.may_begin(barrier=True)


def test_no_more_requests_begin_than_the_limit() -> None:
    session = Session()
    for _ in range(limits.IN_FLIGHT_REQUESTS_MAX):
        session.begin(barrier=False)
    assert not session.may_begin(barrier=False)


def test_a_client_that_does_not_read_is_not_served_further() -> None:
    session = Session()
    session.begin(barrier=True).pieces = [bytes(limits.UNDELIVERED_ANSWER_BYTES_MAX)]
    session.ready()
    assert not session.may_begin(barrier=False)
    session.delivered(1)
    assert session.may_begin(barrier=False)


def test_delivering_more_than_was_answered_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        Session().delivered(1)


def test_a_closing_session_begins_nothing() -> None:
    session = Session()
    session.closing = True
    assert not session.may_begin(barrier=False)


def test_commits_overlap_with_commits_and_not_with_produces() -> None:
    session = Session()
    first, second = (session.begin(barrier=False, key=OFFSET_COMMIT) for _ in range(2))
    assert not session.may_begin(barrier=False)
    second.pieces = [b"2"]
    assert session.ready() == []
    first.pieces = [b"1"]
    assert session.ready() == [b"1", b"2"]
    assert session.may_begin(barrier=False)
