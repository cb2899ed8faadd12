"""franz-go and kafkajs as the tests drive them: one run of a driver program for each call.

A call is lines of JSON on standard input: what to do, then the records, one a line and as they
come, so that a test sets the pace. The answer is one line of JSON.
"""

import base64
import json
import subprocess
from collections.abc import Iterable, Mapping
from typing import Any

from harness.clients import built
from harness.clients.facts import (
    CODECS,
    DEADLINE_S,
    USUAL,
    Position,
    Record,
    Refused,
    Shape,
    Stored,
    Writing,
)


class Program:
    """A client behind a driver program."""

    name: str
    codecs: tuple[str, ...]
    cannot: frozenset[Shape]

    def __init__(self, bootstrap: str, command: list[str]) -> None:
        self._bootstrap = bootstrap
        self._command = command

    def create_topic(
        self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        self._call("create_topic", topic=topic, partitions=partitions, configs=dict(configs or {}))

    def delete_topic(self, topic: str) -> None:
        self._call("delete_topic", topic=topic)

    def partitions(self, topic: str) -> int:
        return int(self._call("partitions", topic=topic)["partitions"])

    def span(self, topic: str, partition: int) -> tuple[int, int]:
        answer = self._call("span", topic=topic, partition=partition)
        return answer["low"], answer["high"]

    def offset_for_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        answer = self._call(
            "offset_for_time", topic=topic, partition=partition, timestamp_ms=timestamp_ms
        )
        offset = answer["offset"]
        return None if offset is None else int(offset)

    def produce(
        self,
        topic: str,
        records: Iterable[Record],
        *,
        partition: int | None = 0,
        writing: Writing = USUAL,
    ) -> list[Position]:
        answer = self._call(
            "produce",
            records,
            topic=topic,
            partition=partition,
            codec=writing.codec,
            idempotent=writing.idempotent,
            request_bytes_max=writing.request_bytes_max,
            linger_ms=writing.linger_ms,
        )
        return [Position(*pair) for pair in answer["positions"]]

    def _call(self, verb: str, records: Iterable[Record] = (), **fields: object) -> dict[str, Any]:
        call = {"verb": verb, "bootstrap": self._bootstrap, **fields}
        with subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as program:
            assert program.stdin is not None
            program.stdin.write(json.dumps(call) + "\n")
            for record in records:
                program.stdin.write(json.dumps(_row(record)) + "\n")
                program.stdin.flush()
            try:
                output, _ = program.communicate(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                program.kill()
                raise
        answer: dict[str, Any] = json.loads(output)
        if answer.get("code"):
            raise Refused(answer["code"])
        assert not answer.get("failure"), answer["failure"]
        return answer


class Franz(Program):
    """Drives franz-go: kgo for data, kadm for topics."""

    name = "franz-go"
    codecs = CODECS
    cannot = frozenset()

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, built.franz())

    def read(self, topic: str, partition: int, *, start: int, count: int) -> list[Stored]:
        answer = self._call("read", topic=topic, partition=partition, start=start, count=count)
        return [_stored(row) for row in answer.get("records", [])]

    def describe(self, topic: str, partition: int) -> dict[str, Any]:
        """All that kadm learns of the cluster and of one partition."""
        facts: dict[str, Any] = self._call("describe", topic=topic, partition=partition)["facts"]
        return facts

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """The start of the partition then."""
        answer = self._call("delete_records", topic=topic, partition=partition, start=before)
        return int(answer["low"])


class KafkaJs(Program):
    """Drives kafkajs as producer and admin: its consumer always joins a group."""

    name = "kafkajs"
    codecs: tuple[str, ...] = ("none", "gzip")
    cannot = frozenset({Shape.NULL_HEADER, Shape.HEADERS_IN_TURN})

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap, built.kafkajs())


def _row(record: Record) -> dict[str, object]:
    return {
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [{"key": key, "value": _text(value)} for key, value in record.headers],
        "timestamp_ms": record.timestamp_ms,
    }


def _stored(row: dict[str, Any]) -> Stored:
    record = Record(
        value=_bytes(row["value"]),
        key=_bytes(row["key"]),
        headers=tuple((pair["key"], _bytes(pair["value"])) for pair in row["headers"] or ()),
        timestamp_ms=row["timestamp_ms"],
    )
    return Stored(row["partition"], row["offset"], record)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
