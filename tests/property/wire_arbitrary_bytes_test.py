"""Whatever bytes come: a message that means the same when written and read again, or WireError."""

from random import Random
from typing import Any

import pytest

from harness.clients.messages import VERSIONS, message_class, random_message
from harness.faults.mutation import mutated
from tidelog.wire import frame
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import Rejected, WireError
from tidelog.wire.header import AnyApi, decode_request_header
from tidelog.wire.records import Record, build_batch, iterate_batches, iterate_records

SHARDS = 10
CASES_PER_SHARD = 20_000
CASES_PER_SAMPLE = 25
RECORD_CASES_PER_SHARD = 1_000


@pytest.mark.parametrize("seed", range(SHARDS))
def test_any_bytes_are_a_message_or_a_wire_error(seed: int) -> None:
    random = Random(seed)
    read = refused = 0
    for _ in range(CASES_PER_SHARD // CASES_PER_SAMPLE):
        api, version = random.choice(VERSIONS)
        direction = random.choice(("request", "response"))
        valid = sample(api, version, direction, random)
        for _ in range(CASES_PER_SAMPLE):
            data = mutated(valid, random)
            try:
                judge(api, version, direction, data)
                read += 1
            except WireError:
                refused += 1
            except Exception as failure:
                raise AssertionError(
                    f"seed {seed}: {direction} {api} v{version} {data.hex()}"
                ) from failure
    assert read > CASES_PER_SHARD // 20, "too few cases get as far as a value"
    assert refused > CASES_PER_SHARD // 5, "too few cases are wrong"


def sample(api: AnyApi, version: int, direction: str, random: Random) -> bytes:
    """A valid frame without its size."""
    message = random_message(message_class(api, direction), version, random)
    if direction == "request":
        return frame.joined(frame.encode_request(api, version, 1, "client", message))[4:]
    return frame.joined(frame.encode_response(api, version, 1, message))[4:]


def judge(api: AnyApi, version: int, direction: str, data: bytes) -> None:
    if direction == "response":
        _, message = frame.decode_response(api, version, memoryview(data))
        again = frame.joined(frame.encode_response(api, version, 1, message))[4:]
        assert frame.decode_response(api, version, memoryview(again)) == (1, message)
        return
    header = decode_request_header(memoryview(data), {api.key: api})
    if header.api_key != api.key or header.version not in api.versions:
        return
    version = header.version
    message = frame.decode_request(api, version, memoryview(data), header.body_position)
    again = frame.joined(frame.encode_request(api, version, 1, None, message))[4:]
    position = decode_request_header(memoryview(again), {api.key: api}).body_position
    assert frame.decode_request(api, version, memoryview(again), position) == message


@pytest.mark.parametrize("seed", range(SHARDS))
def test_any_bytes_are_record_batches_or_a_wire_error(seed: int) -> None:
    random = Random(seed)
    for codec in Codec:
        valid = bytes(build_batch(random_records(random), codec=codec))
        for _ in range(RECORD_CASES_PER_SHARD // len(Codec)):
            # Past the header's first fields, so that most cases reach the codec and the records.
            start = random.choice((0, 0, 17, 61))
            data = valid[:start] + mutated(valid[start:], random)
            try:
                _read_batches(data)
            except Exception as failure:
                raise AssertionError(f"seed {seed}: {codec.name} {data.hex()}") from failure


def _read_batches(data: bytes) -> None:
    try:
        for _, batch in iterate_batches(memoryview(data)):
            records: list[Any] = list(iterate_records(batch))
            assert all(type(record) is Record for record in records)
    except (WireError, Rejected):
        return


def random_records(random: Random) -> list[Record]:
    def content() -> bytes | None:
        return random.choice((None, b"", b"key", random.randbytes(200), b"a" * 500))

    return [
        Record(
            offset=number,
            timestamp=random.choice((-1, 0, 1_700_000_000_000 + number)),
            key=content(),
            value=content(),
            headers=tuple(("name", content()) for _ in range(random.randrange(3))),
        )
        for number in range(random.randrange(1, 20))
    ]
