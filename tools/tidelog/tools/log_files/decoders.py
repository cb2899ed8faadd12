"""What the records of topics that the cluster keeps for itself mean.

One function a topic: add it to `DECODERS`, and `log dump --deep` shows what it returns.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from struct import Struct as Format
from typing import Final

from msgspec import Struct, structs

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import Uuid, uuid_text
from tidelog.tools.log_files.kinds import METADATA_TOPIC
from tidelog.wire.metadata_records import decode
from tidelog.wire.records import Record

Decoder = Callable[[Record], Mapping[str, object]]
_CONTROL_KEY: Final = Format(">hh")
_CONTROL_TYPES: Final = {0: "abort", 1: "commit"}
_END_VALUE: Final = Format(">hi")


def decoder_of(topic: str) -> Decoder | None:
    """None for topics whose records are their users' business."""
    return DECODERS.get(topic)


def metadata_record(record: Record) -> Mapping[str, object]:
    """A record of the metadata log."""
    try:
        found = decode(record.value or b"", place=METADATA_TOPIC, position=record.offset)
    except CorruptError as error:
        return {"unreadable": error.reason}
    return {"record": type(found).__name__, **_fields(found)}


def control_record(record: Record) -> Mapping[str, object]:
    """The end of a transaction, in any topic."""
    key = record.key or b""
    if len(key) != _CONTROL_KEY.size:
        return {"unreadable": "no key of a control record"}
    version, kind = _CONTROL_KEY.unpack(key)
    value = record.value or b""
    said: dict[str, object] = {"record": _CONTROL_TYPES.get(kind, str(kind)), "version": version}
    if kind in _CONTROL_TYPES and len(value) >= _END_VALUE.size:
        said["coordinator_epoch"] = _END_VALUE.unpack_from(value)[1]
    return said


def _fields(found: Struct) -> dict[str, object]:
    return {name: _value(value) for name, value in structs.asdict(found).items()}


def _value(value: object) -> object:
    match value:
        case Enum():
            return value.name
        case bytes():
            return uuid_text(Uuid(value)) if len(value) == 16 else value.hex()
        case tuple() | list():
            return [_value(element) for element in value]
        case Struct():
            return _fields(value)
        case _:
            return value


DECODERS: Final[Mapping[str, Decoder]] = {METADATA_TOPIC: metadata_record}
