"""TxnOffsetCommit (key 28), versions 0-5, flexible from 3.

v3 checks the member, v4 TRANSACTION_ABORTABLE, v5 adds the group to the transaction.
"""

from tidelog.wire.primitives import INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class TxnOffsetCommitRequestPartition:
    partition_index: int = row(INT32)
    committed_offset: int = row(INT64)
    committed_leader_epoch: int = row(INT32, "2+", default=-1)
    committed_metadata: str | None = row(STRING, nullable="0+")


@message
class TxnOffsetCommitRequestTopic:
    name: str = row(STRING)
    partitions: list[TxnOffsetCommitRequestPartition] = row(array(TxnOffsetCommitRequestPartition))


@message
class TxnOffsetCommitRequest:
    transactional_id: str = row(STRING)
    group_id: str = row(STRING)
    producer_id: int = row(INT64)
    producer_epoch: int = row(INT16)
    generation_id: int = row(INT32, "3+", default=-1)
    member_id: str = row(STRING, "3+")
    group_instance_id: str | None = row(STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = row(array(TxnOffsetCommitRequestTopic))


@message
class TxnOffsetCommitResponsePartition:
    partition_index: int = row(INT32)
    error_code: int = row(INT16)


@message
class TxnOffsetCommitResponseTopic:
    name: str = row(STRING)
    partitions: list[TxnOffsetCommitResponsePartition] = row(
        array(TxnOffsetCommitResponsePartition)
    )


@message
class TxnOffsetCommitResponse:
    throttle_time_ms: int = row(INT32)
    topics: list[TxnOffsetCommitResponseTopic] = row(array(TxnOffsetCommitResponseTopic))


API = ApiSchema(
    key=28,
    name="TxnOffsetCommit",
    versions=range(6),
    flexible_from=3,
    request=TxnOffsetCommitRequest,
    response=TxnOffsetCommitResponse,
)
