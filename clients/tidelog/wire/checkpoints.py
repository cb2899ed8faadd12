"""The small text files beside the logs, in Kafka's formats."""

from collections.abc import Mapping
from typing import Final

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import ZERO_UUID, Offset, Partition, TopicPartition, Uuid, uuid_from_text
from tidelog.kernel.ids import uuid_text as text_of

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEANED: Final = "cleaner-offset-checkpoint"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

Offsets = dict[TopicPartition, Offset]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    rows = "".join(
        f"{topic} {partition} {offset}\n" for (topic, partition), offset in sorted(offsets.items())
    )
    return f"0\n{len(offsets)}\n{rows}".encode("ascii")


def decode_offsets(content: bytes, *, place: str) -> Offsets:
    """Read an offset checkpoint; CorruptError where it is not one, never a part of it."""
    try:
        return dict(map(_offset_row, counted_rows(content)))
    except ValueError as error:
        raise CorruptError(file=place, position=0, reason=f"no checkpoint: {error}") from error


def counted_rows(content: bytes) -> list[str]:
    """The rows of Kafka's checkpoint files: version 0, their number, they; ValueError if not so."""
    version, count, *rows = content.decode("ascii").split("\n")
    if version != "0" or rows[-1:] != [""] or int(count) != len(rows) - 1:
        raise ValueError("version or count is wrong")
    return rows[:-1]


def _offset_row(row: str) -> tuple[TopicPartition, Offset]:
    topic, partition, offset = row.split(" ")
    if int(offset) < 0:
        raise ValueError("a negative offset")
    return (topic, Partition(int(partition))), Offset(int(offset))


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {text_of(topic_id)}".encode("ascii")


def decode_partition_metadata(content: bytes | None) -> Uuid:
    """The topic id; ZERO_UUID where it is not known."""
    if content is None:
        return ZERO_UUID
    try:
        rows = dict(row.split(": ", 1) for row in content.decode("ascii").splitlines() if row)
        return uuid_from_text(rows.get("topic_id", ""))
    except ValueError:
        return ZERO_UUID


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """A Java properties file, as far as it is needed here."""
    return "".join(f"{name}={value}\n" for name, value in properties.items()).encode("ascii")


def decode_properties(content: bytes, *, place: str) -> dict[str, str]:
    try:
        rows = (row.strip() for row in content.decode("ascii").splitlines())
        pairs = [row.split("=", 1) for row in rows if row and not row.startswith("#")]
        return {name.strip(): value.strip() for name, value in pairs}
    except ValueError as error:
        raise CorruptError(file=place, position=0, reason=f"no properties: {error}") from error
