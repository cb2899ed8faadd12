"""Java's console tools as the tests drive them: text in, text out."""

import subprocess
from collections.abc import Iterable, Sequence

from harness.clients.facts import Record, Stored
from harness.clients.tools_jvm import Said, java_command, run_tool
from harness.kafka.jars import need_kafka

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"

NULL = "~null~"
"""Stands for null in both directions."""

FIELD = "\x1f"
HEADER = "\x1e"
NAME = "\x1d"
READER = {
    "parse.key": "true",
    "parse.headers": "true",
    "key.separator": FIELD,
    "headers.delimiter": FIELD,
    "headers.separator": HEADER,
    "headers.key.separator": NAME,
    "null.marker": NULL,
}
FORMATTER = {
    "print.timestamp": "true",
    "print.partition": "true",
    "print.offset": "true",
    "print.headers": "true",
    "print.key": "true",
    "key.separator": FIELD,
    "headers.separator": HEADER,
    "null.literal": NULL,
}


class Java:
    """Drives the tools of one Kafka release, by their main classes."""

    name = "Java's console tools"

    def __init__(self, bootstrap: str, *, alone: bool = False) -> None:
        """Alone: each call has a JVM of its own, as Kafka's scripts do it."""
        need_kafka()
        self._bootstrap = bootstrap
        self._alone = alone

    def produce(self, topic: str, records: Iterable[Record], *, codec: str) -> None:
        """Keys, values and headers go as text; the tool itself sets the time."""
        lines = "".join(_line(record) + "\n" for record in records)
        arguments = ["--topic", topic, "--compression-codec", codec, *_each("reader", READER)]
        self._run(CONSOLE_PRODUCER, *arguments, text=lines)

    def read(self, topic: str, partition: int, *, start: int, count: int) -> list[Stored]:
        output = self._run(
            CONSOLE_CONSUMER,
            *("--topic", topic, "--partition", str(partition), "--offset", str(start)),
            *("--max-messages", str(count), "--timeout-ms", "30000"),
            *_each("formatter", FORMATTER),
        )
        return [_stored(line) for line in output.split("\n") if line]

    def measure(self, topic: str, *, records: int, size: int, config: Sequence[str]) -> str:
        return self._run(
            PRODUCER_PERFORMANCE,
            *("--topic", topic, "--num-records", str(records), "--record-size", str(size)),
            *("--throughput", "-1", "--command-property", *config),
        )

    def tool(self, name: str, *arguments: str) -> str:
        """What any of the tools prints; it must succeed, and log no error."""
        return self._run(name, *arguments)

    def _run(self, tool: str, *arguments: str, text: str = "") -> str:
        words = (tool, "--bootstrap-server", self._bootstrap, *arguments)
        said = self._run_alone(words, text) if self._alone else run_tool(*words, text=text)
        assert said.code == 0, said.err
        # The log of the tools goes to standard error: warnings are findings too.
        assert " ERROR " not in said.err, said.err
        return said.out

    def _run_alone(self, words: Sequence[str], text: str) -> Said:
        done = subprocess.run(
            java_command(*words),
            input=text,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)


def _each(kind: str, properties: dict[str, str]) -> list[str]:
    pairs = [[f"--{kind}-property", f"{name}={value}"] for name, value in properties.items()]
    return [word for pair in pairs for word in pair]


def _line(record: Record) -> str:
    headers = HEADER.join(f"{name}{NAME}{_text(value)}" for name, value in record.headers)
    return FIELD.join([headers or NULL, _text(record.key), _text(record.value)])


def _stored(line: str) -> Stored:
    """One line of the formatter: time, partition, offset, headers, key, value."""
    time_field, partition, offset, headers, key, value = line.split(FIELD)
    record = Record(
        value=_bytes(value),
        key=_bytes(key),
        headers=_headers(headers),
        timestamp_ms=int(time_field.removeprefix("CreateTime:")),
    )
    return Stored(
        int(partition.removeprefix("Partition:")), int(offset.removeprefix("Offset:")), record
    )


def _headers(text: str) -> tuple[tuple[str, bytes | None], ...]:
    if text == "NO_HEADERS":
        return ()
    pairs = (pair.split(":", maxsplit=1) for pair in text.split(HEADER))
    return tuple((name, _bytes(value)) for name, value in pairs)


def _text(data: bytes | None) -> str:
    return NULL if data is None else data.decode()


def _bytes(text: str) -> bytes | None:
    return None if text == NULL else text.encode()
