"""What a broker takes from the transaction coordinator: by epoch, by session, and how much."""

import pytest

from harness.machines.transaction_link import (
    AWAY,
    BROKEN,
    LIFE,
    MARKER,
    NEXT_LIFE,
    START,
    Make,
    append,
    asked,
    connected,
    finished,
    hear,
    new_link,
    said,
)
from tidelog.kernel.ids import (
    Epoch,
    Offset,
)
from tidelog.kernel.limits import (
    FORWARDED_CALLS_MAX,
    FORWARDED_FRAME_BYTES_MAX,
    TRANSACTION_CALLS_WAITING_BYTES_MAX,
    TRANSACTION_REQUESTS_BYTES_MAX,
    TRANSACTION_REQUESTS_MAX,
)
from tidelog.node.transactions.link import (
    Abandoned,
    Connected,
    Disconnected,
    EpochHeard,
    Finished,
    Serve,
    Served,
    refusal,
)
from tidelog.wire.errors import ErrorCode
from tidelog.wire.transactions import (
    Appended,
    Chunk,
    Forward,
    Hello,
    Mark,
    Marked,
    Read,
    ToTransactions,
    Welcome,
)

# -- epochs


def test_a_coordinator_of_the_past_is_not_spoken_to() -> None:
    link = new_link()
    link.step(START, EpochHeard(Epoch(5)))
    link.step(START, asked(9))
    (hello,) = said(link.step(START, Connected()))
    assert isinstance(hello, Hello)
    assert hear(link, Welcome(hello.session, LIFE, Epoch(4))) == []
    assert not link.is_welcome
    sent = hear(link, Welcome(hello.session, NEXT_LIFE, Epoch(5)))
    assert [type(one) for one in said(sent)] == [Forward]


def test_when_the_metadata_names_a_later_one_what_the_earlier_was_asked_is_over() -> None:
    link, session = connected(epoch=3)
    link.step(START, asked(9))
    effects = link.step(START, EpochHeard(Epoch(4)))
    assert finished(effects) == {9: BROKEN}
    (hello,) = said(effects)
    assert isinstance(hello, Hello)
    assert hello.session > session
    assert hear(link, Welcome(hello.session, LIFE, Epoch(3))) == []
    assert not link.is_welcome


def test_an_epoch_that_is_known_changes_nothing() -> None:
    link, _ = connected(epoch=3)
    link.step(START, asked(9))
    assert link.step(START, EpochHeard(Epoch(3))) == []
    assert link.open_calls() == [9]


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        (
            lambda session: append(session, 7, epoch=2),
            Appended(LIFE, 7, ErrorCode.TRANSACTION_COORDINATOR_FENCED, Offset(-1)),
        ),
        (
            lambda session: Mark(session, 7, Epoch(2), (MARKER, MARKER)),
            Marked(LIFE, 7, (ErrorCode.TRANSACTION_COORDINATOR_FENCED,) * 2),
        ),
        (
            lambda session: Read(session, 7, Epoch(2), 0, Epoch(1), Offset(4), 1),
            Chunk(
                LIFE,
                7,
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                Offset(-1),
                Offset(-1),
                0,
                Offset(4),
                b"",
            ),
        ),
    ],
    ids=["append", "mark", "read"],
)
def test_what_comes_with_a_lower_epoch_than_was_heard_of_is_refused(
    request_: Make, reply: ToTransactions
) -> None:
    link, session = connected(epoch=3)
    assert said(hear(link, request_(session))) == [reply]


def test_a_higher_epoch_is_learnt_from_what_it_wants() -> None:
    link, session = connected(epoch=3)
    assert hear(link, append(session, epoch=4)) == [Serve(LIFE, append(session, epoch=4))]
    assert link.epoch == 4
    (reply,) = said(hear(link, append(session, epoch=3)))
    assert isinstance(reply, Appended)
    assert reply.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


# -- what it wants


def test_what_was_done_is_told() -> None:
    link, session = connected()
    (serve,) = hear(link, append(session, call=8))
    assert isinstance(serve, Serve)
    reply = Appended(LIFE, 8, ErrorCode.NONE, Offset(4))
    assert said(link.step(START, Served(serve, reply))) == [reply]


@pytest.mark.parametrize("ends", [[Disconnected()], [Disconnected(), Connected()], [Connected()]])
def test_what_was_wanted_in_an_earlier_session_is_not_told(
    ends: list[Connected | Disconnected],
) -> None:
    link, session = connected()
    (serve,) = hear(link, append(session))
    assert isinstance(serve, Serve)
    for end in ends:
        for message in said(link.step(START, end)):
            assert isinstance(message, Hello)
            hear(link, Welcome(message.session, LIFE, Epoch(3)))
    assert link.step(START, Served(serve, refusal(serve, ErrorCode.NONE))) == []


# -- bounds


def test_so_many_calls_may_be_open_and_no_more() -> None:
    link = new_link()
    for call in range(FORWARDED_CALLS_MAX):
        assert link.step(START, asked(call)) == []
    assert finished(link.step(START, asked(-1))) == {-1: AWAY}


def test_so_many_bytes_may_wait_and_no_more() -> None:
    link = new_link()
    frame = bytes(FORWARDED_FRAME_BYTES_MAX)
    fit = TRANSACTION_CALLS_WAITING_BYTES_MAX // len(frame)
    for call in range(fit):
        assert link.step(START, asked(call, frame)) == []
    assert finished(link.step(START, asked(-1, frame))) == {-1: AWAY}
    link.step(START, Abandoned(0))
    assert link.step(START, asked(-2, frame)) == []


def test_a_frame_that_is_too_large_is_not_passed_on() -> None:
    link, _ = connected()
    frame = bytes(FORWARDED_FRAME_BYTES_MAX + 1)
    assert link.step(START, asked(9, frame)) == [Finished(9, ErrorCode.INVALID_REQUEST)]


def test_so_much_may_be_wanted_at_once_and_no_more() -> None:
    link, session = connected()
    wanted = [hear(link, append(session, call))[0] for call in range(TRANSACTION_REQUESTS_MAX)]
    assert all(isinstance(one, Serve) for one in wanted)
    (reply,) = said(hear(link, append(session, 10**6)))
    assert isinstance(reply, Appended)
    assert reply.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    first = wanted[0]
    assert isinstance(first, Serve)
    link.step(START, Served(first, refusal(first, ErrorCode.NONE)))
    assert isinstance(hear(link, append(session, 10**6))[0], Serve)


def test_so_many_bytes_may_be_wanted_at_once_and_no_more() -> None:
    link, session = connected()
    half = bytes(TRANSACTION_REQUESTS_BYTES_MAX // 2)
    assert isinstance(hear(link, append(session, 1, batch=half))[0], Serve)
    assert isinstance(hear(link, append(session, 2, batch=half))[0], Serve)
    (reply,) = said(hear(link, append(session, 3)))
    assert isinstance(reply, Appended)
    assert reply.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
