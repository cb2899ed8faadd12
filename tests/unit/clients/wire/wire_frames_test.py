"""Frames and headers: known bytes, the ApiVersions exception, and what is no frame."""

import pytest

from tidelog.kernel.limits import REQUEST_BYTES_MAX
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.frame import (
    decode_request,
    decode_response,
    decode_size,
    encode_request,
    encode_response,
    joined,
    read_request,
)
from tidelog.wire.header import RequestHeader, decode_request_header
from tidelog.wire.messages import k00_produce, k01_fetch, k03_metadata, k18_api_versions
from tidelog.wire.registry import MODULES, api_for

PRODUCE, FETCH, METADATA = k00_produce.API, k01_fetch.API, k03_metadata.API
API_VERSIONS = k18_api_versions.API
KNOWN = {api.key: api for api in (PRODUCE, FETCH, METADATA, API_VERSIONS)}


def header_of(text: str) -> RequestHeader:
    return decode_request_header(memoryview(bytes.fromhex(text)), KNOWN)


def test_an_old_header_ends_with_the_client_id() -> None:
    header = header_of("0003 0001 00000007 0002 6b62 ffffffff")
    assert header == RequestHeader(3, 1, 7, "kb", 12)


def test_a_flexible_header_keeps_the_old_client_id_and_ends_with_tags() -> None:
    assert header_of("0003 000c 00000007 0002 6b62 00 01") == RequestHeader(3, 12, 7, "kb", 13)
    assert header_of("0012 0003 00000007 ffff 00") == RequestHeader(18, 3, 7, None, 11)


def test_unknown_tags_in_a_header_are_skipped() -> None:
    assert header_of("0003 000c 00000007 ffff 02 05 02 aabb 0a 00 01").body_position == 17


@pytest.mark.parametrize(
    "text", ["0003 0063 0000002a", "7fff 0000 0000002a", "ffff ffff 0000002a ff"]
)
def test_of_an_unknown_key_or_version_only_eight_bytes_are_read(text: str) -> None:
    header = header_of(text)
    assert header.correlation_id == 42
    assert header.client_id is None
    assert header.body_position == 8


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0003 0001 000000",
        "0003 0001 00000007",  # no client id
        "0003 0001 00000007 00",
        "0003 0001 00000007 0005 6b",  # cut client id
        "0003 0001 00000007 fffe",  # -2 bytes
        "0003 0001 00000007 0001 ff",  # not UTF-8
        "0003 000c 00000007 ffff",  # no tags
        "0003 000c 00000007 ffff 01 00",  # a tag without its size
        "0003 000c 00000007 ffff 01 00 05 aa",  # a tag longer than the frame
        "0003 000c 00000007 ffff ff ff ff ff ff 01",  # a count of more than 32 bits
        "0003 000c 00000007 ffff e9 07" + "0000" * 1001,  # 1,001 tags
    ],
)
def test_a_wrong_header_is_a_wire_error(text: str) -> None:
    with pytest.raises(WireError):
        header_of(text)


def test_an_api_versions_response_never_has_header_tags() -> None:
    message = k18_api_versions.ApiVersionsResponse()
    assert joined(encode_response(API_VERSIONS, 3, 9, message)).hex(" ", 4) == (
        "0000000c 00000009 00000100 00000000"
    )
    flexible = joined(encode_response(METADATA, 12, 9, k03_metadata.MetadataResponse()))
    assert flexible[8] == 0
    assert decode_response(METADATA, 12, memoryview(flexible)[4:])[0] == 9


def test_a_too_new_api_versions_request_is_answered_in_version_0() -> None:
    answer = k18_api_versions.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[k18_api_versions.ApiVersion(api_key=18, min_version=0, max_version=4)],
    )
    assert joined(encode_response(API_VERSIONS, 0, 1, answer)) == bytes.fromhex(
        "00000010 00000001 0023 00000001 0012 0000 0004"
    )


def test_records_of_a_request_are_views_into_its_frame() -> None:
    request = k00_produce.ProduceRequest(
        topic_data=[
            k00_produce.TopicProduceData(
                name="t",
                partition_data=[
                    k00_produce.PartitionProduceData(records=memoryview(b"batch-1")),
                    k00_produce.PartitionProduceData(index=1, records=None),
                ],
            )
        ]
    )
    frame = bytearray(joined(encode_request(PRODUCE, 9, 1, None, request)))[4:]
    body = decode_request_header(memoryview(frame), KNOWN).body_position
    read = decode_request(PRODUCE, 9, memoryview(frame), body)
    assert read == request
    records = read.topic_data[0].partition_data[0].records
    assert records is not None
    assert records.obj is frame


def test_records_of_a_response_go_out_untouched() -> None:
    class FileSlice:
        def __len__(self) -> int:
            return 300

    slices = [FileSlice(), FileSlice()]
    response = k01_fetch.FetchResponse(
        responses=[
            k01_fetch.FetchableTopicResponse(
                partitions=[
                    k01_fetch.PartitionData(partition_index=0, records=slices[0]),
                    k01_fetch.PartitionData(partition_index=1, records=b""),
                    k01_fetch.PartitionData(partition_index=2, records=slices[1]),
                ]
            )
        ]
    )
    pieces = encode_response(FETCH, 13, 1, response)
    assert [piece for piece in pieces if isinstance(piece, FileSlice)] == slices
    assert len(pieces) == 5
    first = pieces[0]
    assert isinstance(first, bytearray)
    assert decode_size(first[:4]) == sum(map(len, pieces)) - 4


@pytest.mark.parametrize(
    "prefix", [b"GET ", b"\x16\x03\x01\x02", b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"]
)
def test_a_size_that_no_frame_has_is_a_wire_error(prefix: bytes) -> None:
    with pytest.raises(WireError):
        decode_size(prefix)


def test_the_largest_frame_is_allowed() -> None:
    assert decode_size(REQUEST_BYTES_MAX.to_bytes(4, "big")) == REQUEST_BYTES_MAX
    with pytest.raises(WireError):
        decode_size((REQUEST_BYTES_MAX + 1).to_bytes(4, "big"))


@pytest.mark.parametrize("version", [1, 9])
def test_bytes_after_a_request_are_counted_and_otherwise_ignored(version: int) -> None:
    asked = k03_metadata.MetadataRequest(topics=[k03_metadata.MetadataRequestTopic(name="t")])
    frame = joined(encode_request(METADATA, version, 1, None, asked))[4:]
    start = decode_request_header(memoryview(frame), KNOWN).body_position
    for more in (b"", b"\x00", b"\xff" * 9):
        read = read_request(METADATA, version, memoryview(frame + more), start)
        assert read == (asked, len(more))
        assert decode_request(METADATA, version, memoryview(frame + more), start) == asked


def test_bytes_after_a_response_are_a_wire_error() -> None:
    answer = joined(encode_response(METADATA, 1, 1, k03_metadata.MetadataResponse()))[4:]
    with pytest.raises(WireError, match="1 bytes behind"):
        decode_response(METADATA, 1, memoryview(answer + b"\x00"))


def test_librdkafkas_wide_null_asks_for_all_topics() -> None:
    frame = bytes.fromhex("0003000d00000003000772646b61666b61 00 00000000 01 00 00")
    start = decode_request_header(memoryview(frame), KNOWN).body_position
    asked, left = read_request(METADATA, 13, memoryview(frame), start)
    assert (asked.topics, left) == (None, 0), "nothing to tell of"
    assert read_request(METADATA, 13, memoryview(frame + b"\x00"), start)[1] == 4


@pytest.mark.parametrize("version", [1, 9])
def test_every_cut_of_a_message_is_a_wire_error(version: int) -> None:
    message = k03_metadata.MetadataRequest(
        topics=[k03_metadata.MetadataRequestTopic(name=name) for name in ("one", "zwölf")]
    )
    frame = joined(encode_request(METADATA, version, 1, None, message))[4:]
    start = decode_request_header(memoryview(frame), KNOWN).body_position
    for size in range(start, len(frame)):
        with pytest.raises(WireError):
            decode_request(METADATA, version, memoryview(frame)[:size], start)


def test_a_response_without_a_header_is_a_wire_error() -> None:
    for frame in (b"", b"\x00\x00\x00"):
        with pytest.raises(WireError):
            decode_response(METADATA, 1, memoryview(frame))
    with pytest.raises(WireError):
        decode_response(METADATA, 12, memoryview(b"\x00\x00\x00\x01"))


def test_a_text_too_long_for_the_wire_is_a_wire_error() -> None:
    message = k03_metadata.MetadataRequest(
        topics=[k03_metadata.MetadataRequestTopic(name="x" * 32_768)]
    )
    for version in (1, 9):
        with pytest.raises(WireError, match="32768 bytes"):
            encode_request(METADATA, version, 1, None, message)
    with pytest.raises(WireError, match="client id"):
        encode_request(METADATA, 1, 1, "x" * 32_768, k03_metadata.MetadataRequest())
    message.topics = [k03_metadata.MetadataRequestTopic(name="x" * 32_767)]
    for version in (1, 9):
        encode_request(METADATA, version, 1, None, message)


def test_each_known_key_has_its_schema() -> None:
    for key, module in MODULES.items():
        api = api_for(key)
        assert api.key == key
        assert module.startswith(f"k{key:02d}_")
        assert api.request.__name__ == f"{api.name}Request"
        assert api.response.__name__ == f"{api.name}Response"
    with pytest.raises(KeyError):
        api_for(4)
