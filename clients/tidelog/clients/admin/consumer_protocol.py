"""What members of a classic group of consumers tell one another: the coordinator hands it on."""

from typing import Final

from tidelog.wire.compile import reader
from tidelog.wire.errors import WireError
from tidelog.wire.primitives import INT32, STRING
from tidelog.wire.schema import array, message, row

_VERSION_BYTES: Final = 2


@message
class _Topic:
    name: str = row(STRING)
    partitions: list[int] = row(array(INT32))


@message
class _Assignment:
    topics: list[_Topic] = row(array(_Topic))


def assigned_partitions(assignment: bytes | memoryview) -> dict[str, list[int]]:
    """Partitions by topic; nothing where a member has none yet, or speaks of something else.

    Every version begins like this; what newer ones add stands behind it.
    """
    view = memoryview(assignment)
    if len(view) <= _VERSION_BYTES:
        return {}
    try:
        found, _ = reader(_Assignment, 0, flexible=False)(view, _VERSION_BYTES)
    except WireError:
        return {}
    return {topic.name: list(topic.partitions) for topic in found.topics}
