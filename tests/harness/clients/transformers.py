"""The transformers of `exactly_once.py`: published clients, and what each needs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from harness.clients import built
from harness.clients.exactly_once import Starts, Stream, confluent
from harness.clients.tools_jvm import java_command, streams_command


class Kind(NamedTuple):
    """One client."""

    programs: Sequence[str]
    """That must be on the machine."""
    starts: Callable[[int, Path], Starts]
    """Takes how many inputs a transaction has at most, and a folder for files."""
    bumps: bool = True
    """Whether it speaks version 2 of transactions where it can: each end raises the epoch."""
    counts: str | None = None
    """Behind the input's name: the topic that keeps its counts, where it counts."""


def _words(stream: Stream, name: str, batch: int) -> list[str]:
    outputs = ",".join(f"{topic}:{count}" for topic, count in stream.outputs.items())
    return [stream.bootstrap, stream.name, outputs, name, str(batch)]


def librdkafka(batch: int, _folder: Path) -> Starts:
    return confluent(batch)


def java(batch: int, _folder: Path) -> Starts:
    def command(stream: Stream, name: str) -> Sequence[str]:
        return java_command("Transformer", *_words(stream, name, batch))

    return command


def streams(batch: int, folder: Path) -> Starts:
    def command(stream: Stream, name: str) -> Sequence[str]:
        words = [*_words(stream, name, batch), str(folder / f"state-{name}")]
        return streams_command("StreamsTransformer", *words)

    return command


def franz(batch: int, _folder: Path) -> Starts:
    return lambda stream, name: [*built.franz(), *_words(stream, name, batch)]


def sarama(batch: int, _folder: Path) -> Starts:
    return lambda stream, name: [*built.sarama(), *_words(stream, name, batch)]


KINDS: Final[Mapping[str, Kind]] = {
    "confluent-kafka": Kind((), librdkafka, bumps=False),
    "java": Kind(("java", "javac", "mvn"), java),
    "franz-go": Kind(("go",), franz),
    "kafka-streams": Kind(("java", "javac", "mvn"), streams, counts="-seen-changelog"),
    "sarama": Kind(("go",), sarama, bumps=False),
}
