"""Requests with bytes after their end: served, and told of once for each client's name."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.raw_socket import request_bytes
from harness.machines.brokers import FakeClient, HandlerBench
from tidelog.node.api import trailing
from tidelog.node.api.dispatch import Dispatcher, routes
from tidelog.node.api.trailing import NAME_CHARS_MAX, Trailing
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.messages import k00_produce, k03_metadata, k12_heartbeat
from tidelog.wire.records import Record, build_batch


class Told:
    """A dispatcher, and what it told."""

    def __init__(self, bench: HandlerBench) -> None:
        self.lines: list[Trailing] = []
        self._bench = bench
        self._dispatcher = Dispatcher(bench.broker, routes(), self.lines.append)

    def ask(self, api: Any, version: int, message: object, more: bytes, name: str = "c") -> Any:
        frame = joined(encode_request(api, version, 1, name, message))[4:] + more
        return self.begin(api, version, frame)

    def begin(self, api: Any, version: int, frame: bytes) -> Any:
        client = FakeClient()
        self._dispatcher.begin(client, memoryview(bytearray(frame)), self._bench.now)
        (answer,) = client.frames()
        return decode_response(api, version, memoryview(answer))[1]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    bench = HandlerBench(tmp_path / "log0")
    bench.topic("t")
    return Told(bench)


BEAT = k12_heartbeat.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("version", [3, 4])
def test_a_request_with_more_bytes_than_it_needs_is_answered(told: Told, version: int) -> None:
    plain = told.ask(k12_heartbeat.API, version, BEAT, b"")
    assert told.lines == []
    assert told.ask(k12_heartbeat.API, version, BEAT, b"\x00") == plain
    (line,) = told.lines
    assert line.client == "c"
    assert line.size == 1
    assert line.request.endswith(f"v{version}")


def test_each_client_is_told_of_once(told: Told) -> None:
    for name in ("one", "two", "one", "", ""):
        told.ask(k12_heartbeat.API, 3, BEAT, b"more", name)
    assert [line.client for line in told.lines] == ["one", "two", ""]


def test_a_bounded_number_of_names_is_remembered_each_cut(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trailing, "NAMES_MAX", 3)
    for number in range(9):
        told.ask(k12_heartbeat.API, 3, BEAT, b"more", f"{number}{'x' * 30_000}")
    assert [line.client[0] for line in told.lines] == ["0", "1", "2"]
    assert {len(line.client) for line in told.lines} == {NAME_CHARS_MAX}


def test_what_librdkafka_leaves_behind_metadata_is_not_told_of(told: Told) -> None:
    request = k03_metadata.MetadataRequest(topics=None)
    told.ask(k03_metadata.API, 9, request, b"\x00\x00\x00")
    assert told.lines == []


@pytest.mark.parametrize("version", [7, 9])
def test_each_of_several_such_produces_is_appended_once(told: Told, version: int) -> None:
    """Also where the next one begins like one that was read before."""
    batch = memoryview(build_batch([Record(0, 1_000, b"k", b"v")]))
    data = k00_produce.PartitionProduceData(index=0, records=batch)
    request = k00_produce.ProduceRequest(
        acks=1,
        timeout_ms=1_000,
        topic_data=[k00_produce.TopicProduceData(name="t", partition_data=[data])],
    )
    frame = request_bytes(k00_produce.API, version, request)[4:]
    offsets = []
    for more in (b"", b"", b"more", b"more", b""):
        answer = told.begin(k00_produce.API, version, frame + more)
        (row,) = answer.responses[0].partition_responses
        offsets.append((row.error_code, row.base_offset))
    assert offsets == [(0, at) for at in range(5)]
