"""A connection without its socket: versions, order, deadlines, and what ends it."""

import pytest

from tidelog.clients.asking import Answered, Ask, Cause, Features, Lost, Outcome, Ticket
from tidelog.clients.session import Session
from tidelog.clients.settings import ConnectionSettings
from tidelog.kernel.instant import Instant, s
from tidelog.wire.compile import Piece
from tidelog.wire.frame import decode_request, encode_response, joined
from tidelog.wire.header import AnyApi, RequestHeader, decode_request_header
from tidelog.wire.messages.k00_produce import API as PRODUCE
from tidelog.wire.messages.k00_produce import ProduceRequest
from tidelog.wire.messages.k03_metadata import API as METADATA
from tidelog.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from tidelog.wire.messages.k18_api_versions import API as API_VERSIONS
from tidelog.wire.messages.k18_api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from tidelog.wire.messages.k20_delete_topics import API as DELETE_TOPICS
from tidelog.wire.messages.k20_delete_topics import DeleteTopicsRequest

START = Instant(0)
KNOWN = {api.key: api for api in (PRODUCE, METADATA, API_VERSIONS)}
OFFERED = ((0, 3, 9), (3, 0, 12), (18, 0, 4))


def session_of(in_flight_max: int = 5) -> Session:
    return Session(START, "b0:9092", ConnectionSettings(in_flight_max=in_flight_max))


def feed(session: Session, data: bytes, now: Instant = START) -> list[Outcome]:
    """Bytes as they come from a socket, in whatever portions the session asks for."""
    outcomes: list[Outcome] = []
    while data and session.failed is None:
        buffer = session.buffer()
        count = min(len(buffer), len(data))
        buffer[:count] = data[:count]
        data = data[count:]
        outcomes += session.received(now, count)
    return outcomes


def requests(session: Session) -> list[RequestHeader]:
    """The headers of all requests that it gives out now."""
    data = memoryview(joined(session.take_output()))
    headers = []
    while data:
        size = int.from_bytes(data[:4], "big")
        headers.append(decode_request_header(data[4 : 4 + size], KNOWN))
        data = data[4 + size :]
    return headers


def answer(api: AnyApi, version: int, correlation_id: int, message: object) -> bytes:
    pieces: list[Piece] = encode_response(api, version, correlation_id, message)
    return joined(pieces)


def versions(*offered: tuple[int, int, int], error: int = 0) -> ApiVersionsResponse:
    rows = [ApiVersion(api_key=k, min_version=low, max_version=high) for k, low, high in offered]
    return ApiVersionsResponse(error_code=error, api_keys=rows)


def negotiated(in_flight_max: int = 5) -> Session:
    session = session_of(in_flight_max)
    (first,) = requests(session)
    feed(session, answer(API_VERSIONS, 4, first.correlation_id, versions(*OFFERED)))
    return session


def metadata_ask(seconds: float = 30) -> Ask:
    return Ask(METADATA, MetadataRequest(topics=[]), timeout_ns=s(seconds))


def test_the_first_request_says_who_we_are() -> None:
    session = session_of()
    data = memoryview(joined(session.take_output()))[4:]
    header = decode_request_header(data, KNOWN)
    message = decode_request(API_VERSIONS, header.version, data, header.body_position)
    assert (header.api_key, header.version, header.client_id) == (18, 4, "tidelog")
    assert message.client_software_name == "tidelog"


def test_what_is_asked_before_the_versions_are_known_waits_for_them() -> None:
    session = session_of()
    (first,) = requests(session)
    assert session.ask(START, Ticket(1), metadata_ask()) == []
    assert requests(session) == []
    feed(session, answer(API_VERSIONS, 4, first.correlation_id, versions(*OFFERED)))
    assert [(one.api_key, one.version) for one in requests(session)] == [(3, 12)]


def test_a_broker_that_is_older_than_the_request_names_its_version() -> None:
    session = session_of()
    (first,) = requests(session)
    refusal = answer(API_VERSIONS, 0, first.correlation_id, versions((18, 0, 2), error=35))
    assert feed(session, refusal) == []
    (second,) = requests(session)
    assert second.version == 2
    assert second.correlation_id != first.correlation_id


def test_a_refusal_that_names_no_version_goes_back_to_the_first() -> None:
    session = session_of()
    (first,) = requests(session)
    feed(session, answer(API_VERSIONS, 0, first.correlation_id, versions(error=35)))
    (second,) = requests(session)
    feed(session, answer(API_VERSIONS, 0, second.correlation_id, versions(error=35)))
    assert second.version == 0
    assert "every version" in (session.failed or "")


def test_negotiation_that_fails_otherwise_ends_the_session() -> None:
    session = session_of()
    (first,) = requests(session)
    session.ask(START, Ticket(1), metadata_ask())
    lost = feed(session, answer(API_VERSIONS, 4, first.correlation_id, versions(error=33)))
    assert [one.cause for one in lost if isinstance(one, Lost)] == [Cause.BROKEN]


@pytest.mark.parametrize(
    ("offered", "version_max", "expected"),
    [
        ((3, 0, 12), 99, 12),
        ((3, 0, 99), 99, METADATA.versions[-1]),
        ((3, 0, 12), 9, 9),
        ((3, 10, 12), 9, None),
        ((3, 90, 99), 99, None),
        ((0, 0, 2), 99, None),
    ],
)
def test_the_version_is_the_highest_that_both_speak_and_none_below_a_floor(
    offered: tuple[int, int, int], version_max: int, expected: int | None
) -> None:
    session = session_of()
    (first,) = requests(session)
    feed(session, answer(API_VERSIONS, 4, first.correlation_id, versions(offered)))
    assert session.version_of(KNOWN[offered[0]], version_max) == expected


def test_a_version_that_does_less_than_is_asked_is_as_good_as_none() -> None:
    session = negotiated()
    produce = ProduceRequest(acks=1, timeout_ms=1, topic_data=[])
    assert session.ask(START, Ticket(1), Ask(PRODUCE, produce, version_min=9)) == []
    (lost,) = session.ask(START, Ticket(2), Ask(PRODUCE, produce, version_min=10))
    assert isinstance(lost, Lost)
    assert lost.cause is Cause.UNSUPPORTED


def test_what_the_cluster_can_do_is_heard_with_the_versions() -> None:
    session = session_of()
    assert session.features == Features()
    (first,) = requests(session)
    told = versions(*OFFERED)
    told.finalized_features_epoch = 5
    told.finalized_features = [FinalizedFeatureKey(name="f", max_version_level=2)]
    feed(session, answer(API_VERSIONS, 4, first.correlation_id, told))
    assert session.features == Features(5, {"f": 2})


def test_an_api_that_the_broker_lacks_is_lost_at_once_and_the_session_lives() -> None:
    session = negotiated()
    (lost,) = session.ask(START, Ticket(1), Ask(DELETE_TOPICS, DeleteTopicsRequest()))
    assert isinstance(lost, Lost)
    assert (lost.cause, session.failed) == (Cause.UNSUPPORTED, None)
    assert lost.detail == "b0:9092 does not offer DeleteTopics"


def test_answers_belong_to_the_oldest_question() -> None:
    session = negotiated()
    for number in (1, 2):
        session.ask(START, Ticket(number), metadata_ask())
    first, second = requests(session)
    data = answer(METADATA, 12, first.correlation_id, MetadataResponse(controller_id=1))
    data += answer(METADATA, 12, second.correlation_id, MetadataResponse(controller_id=2))
    found = [one for one in feed(session, data) if isinstance(one, Answered)]
    assert [(one.ticket, one.version) for one in found] == [(1, 12), (2, 12)]
    assert [one.message.controller_id for one in found] == [1, 2]
    assert session.idle


def test_only_so_many_questions_are_in_flight() -> None:
    session = negotiated(in_flight_max=2)
    for number in range(3):
        session.ask(START, Ticket(number), metadata_ask())
    first, _ = requests(session)
    feed(session, answer(METADATA, 12, first.correlation_id, MetadataResponse()))
    assert len(requests(session)) == 1


def test_a_produce_without_answer_is_done_once_it_is_written() -> None:
    session = negotiated()
    ask = Ask(PRODUCE, ProduceRequest(acks=0, timeout_ms=1), answered=False)
    assert session.ask(START, Ticket(1), ask) == []
    assert [one.api_key for one in requests(session)] == [0]
    assert session.written() == [Answered(Ticket(1), 9, None)]
    assert session.written() == []
    assert session.idle


def test_an_answer_with_the_wrong_number_ends_the_session() -> None:
    session = negotiated()
    session.ask(START, Ticket(1), metadata_ask())
    (first,) = requests(session)
    wrong = answer(METADATA, 12, first.correlation_id + 1, MetadataResponse())
    (lost,) = feed(session, wrong)
    assert isinstance(lost, Lost)
    assert lost.cause is Cause.BROKEN


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        bytes(4),
        b"\xff\xff\xff\xff",
        b"\0\0\0\x04\0\0\0\0",
        b"\0\0\0\x02\0\0",
    ],
)
def test_bytes_that_are_not_the_protocol_end_the_session(data: bytes) -> None:
    session = session_of()
    session.take_output()
    session.ask(START, Ticket(1), metadata_ask())
    (lost,) = feed(session, data)
    assert isinstance(lost, Lost)
    assert lost.cause is Cause.BROKEN
    assert session.failed is not None
    assert session.take_output() == []


def test_an_answer_to_no_question_ends_the_session() -> None:
    session = negotiated()
    assert feed(session, answer(METADATA, 12, 7, MetadataResponse())) == []
    assert "no question" in (session.failed or "")


def test_one_overdue_answer_loses_all_questions_of_the_session() -> None:
    session = negotiated()
    session.ask(START, Ticket(1), metadata_ask(seconds=2))
    session.ask(START, Ticket(2), metadata_ask(seconds=1))
    assert session.deadline() == s(1)
    assert session.expire(Instant(s(1) - 1)) == []
    lost = session.expire(Instant(s(1)))
    assert [(one.ticket, one.cause) for one in lost if isinstance(one, Lost)] == [
        (1, Cause.TIMED_OUT),
        (2, Cause.TIMED_OUT),
    ]


def test_negotiation_has_a_deadline_too() -> None:
    session = session_of()
    assert session.expire(Instant(s(30))) == []
    assert session.failed == "b0:9092: no answer in time"


def test_a_quiet_session_has_no_deadline() -> None:
    session = negotiated()
    assert session.deadline() is None
    assert session.expire(Instant(s(1_000))) == []
