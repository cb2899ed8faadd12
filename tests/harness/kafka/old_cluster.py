"""A broker that has what clusters of before Kafka 0.11 left in their files: messages of formats 0
and 1 beside record batches. It answers what readers ask, and nothing else; it runs in threads here.
"""

import socketserver
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from struct import unpack
from typing import Any

from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_known, encode_response, joined
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.messages import k02_list_offsets as k02
from tidelog.wire.messages import k03_metadata as k03
from tidelog.wire.messages import k18_api_versions as k18
from tidelog.wire.records import Record

SPOKEN = {1: (4, 11), 2: (1, 5), 3: (4, 8), 18: (0, 3)}
"""By API key, from version to version."""
_APIS = {one.API.key: one.API for one in (k01, k02, k03, k18)}


@dataclass
class Stretch:
    """Some records as they lie in a file: one message set, or one record batch."""

    data: bytes
    records: Sequence[Record]


@dataclass
class Log:
    """One partition."""

    stretches: list[Stretch] = field(default_factory=list)

    @property
    def first(self) -> int:
        return self.stretches[0].records[0].offset if self.stretches else 0

    @property
    def end(self) -> int:
        return self.stretches[-1].records[-1].offset + 1 if self.stretches else 0

    def find(self, timestamp: int) -> tuple[int, int]:
        """Offset and time, as ListOffsets has them."""
        if timestamp < 0:
            return (self.end if timestamp == -1 else self.first), -1
        for stretch in self.stretches:
            for record in stretch.records:
                if record.timestamp >= timestamp:
                    return record.offset, record.timestamp
        return -1, -1

    def read(self, offset: int, size: int) -> bytes:
        """Whole stretches, of which one may be larger than was asked for."""
        found = bytearray()
        for one in self.stretches:
            if one.records[-1].offset >= offset and (not found or len(found) < size):
                found += one.data
        return bytes(found)


Logs = Mapping[str, Sequence[Log]]


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    logs: Logs

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Connection(socketserver.StreamRequestHandler):
    server: _Server
    disable_nagle_algorithm = True

    def handle(self) -> None:
        """One request after the other, until the client hangs up."""
        while len(head := self.rfile.read(4)) == 4:
            frame = self.rfile.read(unpack(">i", head)[0])
            key, version, correlation = unpack(">hhi", frame[:8])
            if key == 18 and version > SPOKEN[18][1]:
                # As Kafka says that it is older: in version 0, whose list the client may use.
                answer, version = self._versions(ErrorCode.UNSUPPORTED_VERSION), 0
            else:
                _, request = decode_known(frame, _APIS)
                answer = self._answer(request)
            self.wfile.write(joined(encode_response(_APIS[key], version, correlation, answer)))

    def _answer(self, request: Any) -> Any:
        match request:
            case k18.ApiVersionsRequest():
                return self._versions(ErrorCode.NONE)
            case k03.MetadataRequest():
                return self._metadata(request)
            case k02.ListOffsetsRequest():
                return self._offsets(request)
            case _:
                return self._records(request)

    def _versions(self, code: ErrorCode) -> k18.ApiVersionsResponse:
        rows = [
            k18.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in SPOKEN.items()
        ]
        return k18.ApiVersionsResponse(error_code=code, api_keys=rows)

    def _metadata(self, request: k03.MetadataRequest) -> k03.MetadataResponse:
        logs = self.server.logs
        names = list(logs) if request.topics is None else [one.name or "" for one in request.topics]
        return k03.MetadataResponse(
            brokers=[
                k03.MetadataResponseBroker(node_id=0, host="127.0.0.1", port=self.server.port)
            ],
            cluster_id="old",
            controller_id=0,
            topics=[_topic(name, len(logs.get(name, ()))) for name in names],
        )

    def _offsets(self, request: k02.ListOffsetsRequest) -> k02.ListOffsetsResponse:
        def row(log: Log, asked: k02.ListOffsetsPartition) -> k02.ListOffsetsPartitionResponse:
            offset, timestamp = log.find(asked.timestamp)
            return k02.ListOffsetsPartitionResponse(
                partition_index=asked.partition_index,
                error_code=0,
                timestamp=timestamp,
                offset=offset,
            )

        return k02.ListOffsetsResponse(
            topics=[
                k02.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        row(self.server.logs[topic.name][one.partition_index], one)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _records(self, request: k01.FetchRequest) -> k01.FetchResponse:
        def row(log: Log, asked: k01.FetchPartition) -> k01.PartitionData:
            return k01.PartitionData(
                partition_index=asked.partition,
                error_code=0,
                high_watermark=log.end,
                last_stable_offset=log.end,
                log_start_offset=log.first,
                records=log.read(asked.fetch_offset, asked.partition_max_bytes),
            )

        return k01.FetchResponse(
            responses=[
                k01.FetchableTopicResponse(
                    topic=topic.topic,
                    partitions=[
                        row(self.server.logs[topic.topic][one.partition], one)
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


def _topic(name: str, partitions: int) -> k03.MetadataResponseTopic:
    code = ErrorCode.NONE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rows = [
        k03.MetadataResponsePartition(
            error_code=0,
            partition_index=number,
            leader_id=0,
            leader_epoch=0,
            replica_nodes=[0],
            isr_nodes=[0],
        )
        for number in range(partitions)
    ]
    return k03.MetadataResponseTopic(error_code=code, name=name, partitions=rows)


@contextmanager
def old_cluster(logs: Logs) -> Iterator[str]:
    """Its address."""
    with _Server(("127.0.0.1", 0), _Connection) as server:
        server.logs = logs
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.port}"
        finally:
            server.shutdown()
            thread.join()
