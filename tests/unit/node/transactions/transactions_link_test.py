"""A broker's conversation with the transaction coordinator: sessions and calls."""

import pytest

from harness.machines.transaction_link import (
    AWAY,
    BROKEN,
    CLIENT,
    DEADLINE,
    LIFE,
    NEXT_LIFE,
    START,
    Make,
    append,
    asked,
    at,
    connected,
    finished,
    hear,
    new_link,
    said,
    sent_number,
)
from tidelog.kernel.ids import (
    BrokerId,
    Epoch,
    Incarnation,
    Offset,
)
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import (
    REGISTER_AGAIN_MS,
    TRANSACTIONS_DOWN_WAIT_MS,
)
from tidelog.node.transactions.link import (
    Abandoned,
    Connected,
    Disconnected,
    Received,
    Tick,
)
from tidelog.wire.errors import ErrorCode
from tidelog.wire.transactions import (
    Answered,
    Failed,
    Forward,
    Hello,
    Mark,
    Read,
    Welcome,
)


def test_each_connection_begins_with_hello_in_a_session_of_its_own() -> None:
    link = new_link()
    (first,) = said(link.step(START, Connected()))
    link.step(START, Disconnected())
    (second,) = said(link.step(START, Connected()))
    assert isinstance(first, Hello)
    assert isinstance(second, Hello)
    assert first == Hello(first.session, "cluster", BrokerId(2), Incarnation(5))
    assert second.session > first.session


def test_a_call_goes_out_and_its_answer_comes_back() -> None:
    link, session = connected()
    sent = link.step(START, asked(9))
    number = sent_number(sent)
    assert said(sent) == [Forward(LIFE, number, CLIENT, DEADLINE, b"frame")]
    assert finished(hear(link, Answered(session, number, b"answer"))) == {9: b"answer"}
    assert link.open_calls() == []


def test_a_call_that_is_refused_ends_with_its_code() -> None:
    link, session = connected()
    number = sent_number(link.step(START, asked(9)))
    failed = Failed(session, number, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert finished(hear(link, failed)) == {9: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}


def test_an_answer_to_a_call_that_is_over_is_dropped() -> None:
    link, session = connected()
    number = sent_number(link.step(START, asked(9)))
    hear(link, Answered(session, number, b"answer"))
    assert hear(link, Answered(session, number, b"again")) == []


def test_while_the_coordinator_is_away_a_call_waits_for_it() -> None:
    link = new_link()
    assert link.step(START, asked(9)) == []
    (hello,) = said(link.step(at(100), Connected()))
    assert isinstance(hello, Hello)
    sent = hear(link, Welcome(hello.session, LIFE, Epoch(1)), at(101))
    assert [type(one) for one in said(sent)] == [Forward]


def test_it_waits_no_longer_than_that_and_is_never_sent_then() -> None:
    link = new_link()
    link.step(START, asked(9))
    over = at(TRANSACTIONS_DOWN_WAIT_MS)
    assert link.deadline() == over
    assert link.step(Instant(over - 1), Tick()) == []
    assert finished(link.step(over, Tick())) == {9: AWAY}
    (hello,) = said(link.step(over, Connected()))
    assert isinstance(hello, Hello)
    assert hear(link, Welcome(hello.session, LIFE, Epoch(1)), over) == []


def test_nor_longer_than_its_client_does() -> None:
    link = new_link()
    link.step(START, asked(9, deadline=at(50)))
    assert finished(link.step(at(50), Tick())) == {9: AWAY}


def test_a_call_without_an_answer_ends_at_its_deadline() -> None:
    link, session = connected()
    number = sent_number(link.step(START, asked(9)))
    assert link.deadline() is not None
    assert finished(link.step(Instant(DEADLINE - 1), Tick())) == {}
    assert finished(link.step(DEADLINE, Tick())) == {9: AWAY}
    assert hear(link, Answered(session, number, b"late"), DEADLINE) == []
    assert link.deadline() is None


def test_a_call_that_was_under_way_when_the_connection_ended_is_never_sent_again() -> None:
    link, _ = connected()
    link.step(START, asked(9))
    assert finished(link.step(START, Disconnected())) == {9: BROKEN}
    (hello,) = said(link.step(START, Connected()))
    assert isinstance(hello, Hello)
    assert hear(link, Welcome(hello.session, NEXT_LIFE, Epoch(4))) == []


def test_also_where_the_end_of_the_connection_was_not_seen() -> None:
    link, _ = connected()
    link.step(START, asked(9))
    effects = link.step(START, Connected())
    assert finished(effects) == {9: BROKEN}
    assert [type(one) for one in said(effects)] == [Hello]


def test_a_call_has_a_higher_number_than_its_session_and_all_calls_of_earlier_ones() -> None:
    link, session = connected()
    first = sent_number(link.step(START, asked(9)))
    (hello,) = said(link.step(START, Connected()))
    assert isinstance(hello, Hello)
    assert session < first < hello.session
    hear(link, Welcome(hello.session, LIFE, Epoch(3)))
    assert sent_number(link.step(START, asked(10))) > hello.session


def test_what_nobody_waits_for_any_more_is_not_sent() -> None:
    link = new_link()
    link.step(START, asked(9))
    assert finished(link.step(START, Abandoned(9))) == {9: AWAY}
    (hello,) = said(link.step(START, Connected()))
    assert isinstance(hello, Hello)
    assert hear(link, Welcome(hello.session, LIFE, Epoch(1))) == []


def test_what_was_sent_is_decided_although_nobody_waits() -> None:
    link, session = connected()
    number = sent_number(link.step(START, asked(9)))
    assert link.step(START, Abandoned(9)) == []
    assert finished(hear(link, Answered(session, number, b"answer"))) == {9: b"answer"}


@pytest.mark.parametrize(
    "make",
    [
        lambda session: Welcome(session, LIFE, Epoch(9)),
        lambda session: Answered(session, 2, b"answer"),
        lambda session: Failed(session, 2, AWAY),
        append,
        lambda session: Mark(session, 1, Epoch(9), ()),
        lambda session: Read(session, 1, Epoch(9), 0, Epoch(1), Offset(0), 1),
    ],
    ids=["welcome", "answered", "failed", "append", "mark", "read"],
)
@pytest.mark.parametrize("off", [-1, 1])
def test_what_was_said_in_another_session_counts_for_nothing(make: Make, off: int) -> None:
    link, session = connected()
    link.step(START, asked(9))
    assert hear(link, make(session + off)) == []
    assert link.open_calls() == [9]
    assert link.epoch == 3


def test_nothing_is_done_for_who_has_not_said_who_it_is() -> None:
    link = new_link()
    (hello,) = said(link.step(START, Connected()))
    assert isinstance(hello, Hello)
    assert hear(link, append(hello.session)) == []


def test_without_a_welcome_hello_is_said_again_in_a_session_of_its_own() -> None:
    link = new_link()
    (first,) = said(link.step(START, Connected()))
    due = at(REGISTER_AGAIN_MS)
    assert link.deadline() == due
    (second,) = said(link.step(due, Tick()))
    assert isinstance(first, Hello)
    assert isinstance(second, Hello)
    assert second.session > first.session
    hear(link, Welcome(second.session, LIFE, Epoch(1)), due)
    assert link.is_welcome
    assert said(link.step(at(3 * REGISTER_AGAIN_MS), Tick())) == []


def test_bytes_that_are_no_message_begin_a_new_session_in_a_while() -> None:
    link, session = connected()
    assert link.step(START, Received(b"\xc1")) == []
    (hello,) = said(link.step(at(REGISTER_AGAIN_MS), Tick()))
    assert isinstance(hello, Hello)
    assert hello.session > session
