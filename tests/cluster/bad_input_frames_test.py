"""Bad frames and headers: the answers are fixed, the broker lives, others do not notice."""

import struct
from collections.abc import Iterator

import pytest

from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient, header_bytes, request_bytes
from harness.processes.cluster import Cluster
from tidelog.kernel.limits import REQUEST_ELEMENTS_MAX
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k03_metadata, k18_api_versions

pytestmark = pytest.mark.slow

NAME = {"client_software_name": "raw", "client_software_version": "1"}


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(cluster.bootstrap) as client:
        yield client


@pytest.fixture(autouse=True)
def bystander(cluster: Cluster) -> Iterator[None]:
    """Another client's connection works before and after, and its broker is the same process."""
    pid = cluster.broker_pid(0)
    with RawClient(cluster.bootstrap) as other:
        _ask_versions(other)
        yield
        _ask_versions(other)
    assert cluster.broker_pid(0) == pid


def _ask_versions(client: RawClient) -> None:
    request = k18_api_versions.ApiVersionsRequest(**NAME)
    answer = client.ask(k18_api_versions.API, 3, request)
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    "size",
    [-1, -(2**31), 0, 1, 7, 100 * 1024 * 1024 + 1, 2**31 - 1],
)
def test_a_size_that_no_request_has_ends_the_connection(raw: RawClient, size: int) -> None:
    raw.send(struct.pack(">i", size) + b"xxxxxxxxxxxx")
    assert raw.is_closed_by_peer()


@pytest.mark.parametrize(
    "hello",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03rest"],
    ids=["http", "tls"],
)
def test_another_protocol_s_first_bytes_end_the_connection(raw: RawClient, hello: bytes) -> None:
    raw.send(hello)
    assert raw.is_closed_by_peer()


@pytest.mark.parametrize("key", [-1, 4, 5, 56, 200, 32_767])
def test_an_unknown_key_ends_the_connection(raw: RawClient, key: int) -> None:
    raw.send_frame(header_bytes(key, 0, 1, b"c"))
    assert raw.is_closed_by_peer()


@pytest.mark.parametrize(("key", "version"), [(3, 99), (0, 2), (1, 3), (3, -1), (2, 0), (19, 1)])
def test_a_version_that_is_not_served_ends_the_connection(
    raw: RawClient, key: int, version: int
) -> None:
    raw.send_frame(header_bytes(key, version, 1, b"c") + bytes(50))
    assert raw.is_closed_by_peer()


@pytest.mark.parametrize("version", [5, 99, 32_767, -1])
def test_an_unknown_version_of_api_versions_is_told_the_known_one_in_version_zero(
    raw: RawClient, version: int
) -> None:
    raw.send_frame(header_bytes(18, version, 77, b"c") + b"\xff\xff a body nobody can read")
    assert raw.receive_frame().hex(" ", 2) == "0000 004d 0023 0000 0001 0012 0000 0004"
    _ask_versions(raw)


def test_a_client_that_names_itself_badly_is_refused_in_its_own_version(raw: RawClient) -> None:
    request = k18_api_versions.ApiVersionsRequest(
        client_software_name="-bad name-", client_software_version="1"
    )
    answer = raw.ask(k18_api_versions.API, 3, request)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])


def test_a_client_without_a_name_is_served(raw: RawClient) -> None:
    raw.send_frame(header_bytes(18, 0, 5, None))
    assert raw.receive_frame()[:6] == struct.pack(">ih", 5, 0)


def test_a_client_with_a_name_of_32_kib_is_served(raw: RawClient) -> None:
    raw.send_frame(header_bytes(18, 0, 5, b"n" * 32_767))
    assert raw.receive_frame()[:6] == struct.pack(">ih", 5, 0)


def test_a_name_that_is_not_utf8_ends_the_connection(raw: RawClient) -> None:
    raw.send_frame(header_bytes(18, 0, 5, b"\xff\xfe"))
    assert raw.is_closed_by_peer()


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">i", -7),  # a negative count that is not null
        struct.pack(">i", 2**31 - 1),  # more topics than there are bytes
        struct.pack(">ih", 1, -5),  # a string of negative size
        struct.pack(">ih", 1, 500) + b"short",  # a string that ends behind the frame
    ],
    ids=["negative", "count", "string", "cut"],
)
def test_a_body_that_cannot_be_read_ends_the_connection(raw: RawClient, body: bytes) -> None:
    raw.send_frame(header_bytes(3, 1, 1, b"c") + body)
    assert raw.is_closed_by_peer()


def test_bytes_after_a_request_do_not_keep_it_from_its_answer(raw: RawClient) -> None:
    """As with Kafka, which does not look at them. The next request is read from its own start."""
    for _ in range(2):
        raw.send_frame(header_bytes(3, 1, 6, b"c") + struct.pack(">i", 0) + b"trailing")
        assert raw.receive_frame()[:4] == struct.pack(">i", 6)
    _ask_versions(raw)


@pytest.mark.parametrize(
    "tail",
    [
        b"\xff\xff\xff\xff\xff\xff",  # a count of topics in more than five bytes
        b"\x01\x01\x00\x00\xff\xff\xff\xff\x0f",  # a tag section that claims 2^32 fields
        b"\x01\x01\x00\x00\x01\x05\x7f\x00",  # a tag that ends behind the frame
    ],
    ids=["varint", "bomb", "cut"],
)
def test_a_flexible_body_that_cannot_be_read_ends_the_connection(
    raw: RawClient, tail: bytes
) -> None:
    raw.send_frame(header_bytes(3, 9, 1, b"c") + b"\x00" + tail)
    assert raw.is_closed_by_peer()


def test_a_topic_asked_for_very_often_is_answered_once(cluster: Cluster, raw: RawClient) -> None:
    topic = cluster.create_topic()
    one = k03_metadata.MetadataRequestTopic(name=topic)
    request = k03_metadata.MetadataRequest(topics=[one] * REQUEST_ELEMENTS_MAX)
    answer = raw.ask(k03_metadata.API, 8, request)
    assert [row.name for row in answer.topics] == [topic]


def test_more_elements_than_a_cluster_can_have_end_the_connection(raw: RawClient) -> None:
    one = k03_metadata.MetadataRequestTopic(name="t")
    request = k03_metadata.MetadataRequest(topics=[one] * (REQUEST_ELEMENTS_MAX + 1))
    raw.start(k03_metadata.API, 8, request)
    assert raw.is_closed_by_peer()


def test_requests_sent_in_one_go_are_answered_in_order(raw: RawClient) -> None:
    request = k18_api_versions.ApiVersionsRequest(**NAME)
    numbers = list(range(100, 150))
    raw.send(b"".join(request_bytes(k18_api_versions.API, 3, request, n) for n in numbers))
    got = [struct.unpack(">i", raw.receive_frame()[:4])[0] for _ in numbers]
    assert got == numbers


def test_a_frame_sent_byte_by_byte_is_read(raw: RawClient) -> None:
    frame = request_bytes(k18_api_versions.API, 3, k18_api_versions.ApiVersionsRequest(**NAME))
    for byte in frame:
        raw.send(bytes([byte]))
    assert raw.receive_frame()[:4] == struct.pack(">i", 1)


def test_what_came_before_a_bad_frame_is_still_answered(cluster: Cluster, raw: RawClient) -> None:
    topic = cluster.create_topic()
    row = produce(raw, topic, batch_of(b"kept"))
    assert row.base_offset == 0
    good = request_bytes(k18_api_versions.API, 3, k18_api_versions.ApiVersionsRequest(**NAME))
    raw.send(good + struct.pack(">i", -1))
    assert raw.receive_frame()[:4] == struct.pack(">i", 1)
    assert raw.is_closed_by_peer()


def test_a_thousand_half_sent_frames_hold_no_more_memory_than_their_bytes(
    cluster: Cluster,
) -> None:
    before = cluster.broker_rss_bytes(0)
    clients = [RawClient(cluster.bootstrap) for _ in range(1_000)]
    try:
        for client in clients:
            client.send(struct.pack(">i", 90_000_000) + bytes(2_000))
        with RawClient(cluster.bootstrap) as other:
            _ask_versions(other)
        grown = cluster.broker_rss_bytes(0) - before
    finally:
        for client in clients:
            client.close()
    assert grown < 40_000_000
