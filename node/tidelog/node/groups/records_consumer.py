"""Keys and values of `__consumer_offsets` that a group of the consumer protocol writes.

They are Kafka's, field for field, so that its own decoder reads our files: a key is its type and
then its strings, never flexible; a value is its version and then flexible fields.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from msgspec import Struct

from tidelog.kernel.ids import Uuid
from tidelog.wire.errors import WireError
from tidelog.wire.primitives import BYTES, INT8, INT32, INT64, STRING, UUID
from tidelog.wire.schema import array, message, row
from tidelog.wire.stored import read_stored, written


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers stand in records."""

    STABLE = 0
    """It has what its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """It was told to give partitions up and has not said that it did."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that others have not given up."""


@message
class ConsumerGroupMetadataKey:
    group: str = row(STRING)


@message
class ConsumerGroupMetadataValue:
    epoch: int = row(INT32)
    metadata_hash: int = row(INT64, default=0, tag=0)


@message
class ConsumerGroupMemberMetadataKey:
    group: str = row(STRING)
    member: str = row(STRING)


@message
class ClassicProtocol:
    name: str = row(STRING)
    metadata: bytes = row(BYTES)


@message
class ClassicMemberMetadata:
    session_timeout_ms: int = row(INT32)
    supported_protocols: list[ClassicProtocol] = row(array(ClassicProtocol))


@message
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = row(STRING, nullable="0+", default=None)
    rack_id: str | None = row(STRING, nullable="0+", default=None)
    client_id: str = row(STRING)
    client_host: str = row(STRING)
    subscribed_topic_names: list[str] = row(array(STRING))
    subscribed_topic_regex: str | None = row(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = row(INT32, default=-1)
    server_assignor: str | None = row(STRING, nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = row(
        ClassicMemberMetadata, nullable="0+", default=None, tag=0
    )


@message
class ConsumerGroupTargetAssignmentMetadataKey:
    group: str = row(STRING)


@message
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = row(INT32)
    assignment_timestamp: int = row(INT64, default=0, tag=0)


@message
class ConsumerGroupTargetAssignmentMemberKey:
    group: str = row(STRING)
    member: str = row(STRING)


@message
class TargetPartitions:
    topic_id: Uuid = row(UUID)
    partitions: list[int] = row(array(INT32))


@message
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TargetPartitions] = row(array(TargetPartitions))


@message
class ConsumerGroupCurrentMemberAssignmentKey:
    group: str = row(STRING)
    member: str = row(STRING)


@message
class CurrentPartitions:
    topic_id: Uuid = row(UUID)
    partitions: list[int] = row(array(INT32))
    assignment_epochs: list[int] | None = row(array(INT32), nullable="0+", default=None, tag=0)
    """At which epoch the member got each: an older commit of it is a zombie's."""


@message
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = row(INT32)
    previous_member_epoch: int = row(INT32)
    state: int = row(INT8)
    assigned_partitions: list[CurrentPartitions] = row(array(CurrentPartitions))
    partitions_pending_revocation: list[CurrentPartitions] = row(array(CurrentPartitions))


@message
class ConsumerGroupRegularExpressionKey:
    group: str = row(STRING)
    regular_expression: str = row(STRING)


@message
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = row(array(STRING))
    version: int = row(INT64)
    timestamp: int = row(INT64)


ConsumerKey = (
    ConsumerGroupMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
ConsumerValue = (
    ConsumerGroupMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)


class ConsumerRecord(Struct, frozen=True):
    """What a group of the consumer protocol decided; without a value, the key's is no more."""

    key: ConsumerKey
    value: ConsumerValue | None

    @property
    def group(self) -> str:
        return self.key.group


_KINDS: Final[Mapping[int, tuple[type[ConsumerKey], type[ConsumerValue]]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
"""By the type that a key begins with."""
_KIND_OF: Final[Mapping[type, int]] = {key: kind for kind, (key, _) in _KINDS.items()}
_STATES: Final = frozenset(MemberState)
_VERSION: Final = 0
"""Of every value: there is no other yet."""


def consumer_pair(record: ConsumerRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record."""
    key = written(_KIND_OF[type(record.key)], record.key, version=_VERSION)
    if record.value is None:
        return key, None
    return key, written(_VERSION, record.value, flexible=True)


def read_consumer(kind: int, key: memoryview, value: memoryview | None) -> ConsumerRecord:
    """A record out of its key and value; WireError where the bytes are none."""
    key_class, value_class = _KINDS[kind]
    named = read_stored(key, key_class, _VERSION)
    if value is None:
        return ConsumerRecord(named, None)
    version = int.from_bytes(value[:2], "big")
    if len(value) < 2 or version != _VERSION:
        raise WireError(f"a value of version {version} of kind {kind}; only {_VERSION} is known")
    said = read_stored(value, value_class, _VERSION, flexible=True)
    complaint = _complaint(said)
    if complaint is not None:
        raise WireError(complaint)
    return ConsumerRecord(named, said)


def _complaint(said: ConsumerValue) -> str | None:
    """Why this cannot be what a coordinator wrote, although it can be decoded."""
    match said:
        case ConsumerGroupMetadataValue(epoch=epoch) if epoch < 0:
            return f"a group in epoch {epoch}"
        case ConsumerGroupMemberMetadataValue(
            classic_member_metadata=ClassicMemberMetadata(supported_protocols=[])
        ):
            return "a member of the classic protocol without a protocol"
        case ConsumerGroupCurrentMemberAssignmentValue():
            return _complaint_of_assignment(said)
        case _:
            return None


def _complaint_of_assignment(said: ConsumerGroupCurrentMemberAssignmentValue) -> str | None:
    if said.state not in _STATES:
        return f"a member in state {said.state}"
    for one in (*said.assigned_partitions, *said.partitions_pending_revocation):
        epochs = one.assignment_epochs
        if epochs and len(epochs) != len(one.partitions):
            return f"{len(epochs)} epochs of {len(one.partitions)} partitions"
    return None


CONSUMER_READERS: Final = dict.fromkeys(_KINDS, read_consumer)
