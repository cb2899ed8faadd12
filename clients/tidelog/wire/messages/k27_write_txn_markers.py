"""WriteTxnMarkers (key 27), versions 1-2, all flexible.

From the transaction coordinator to the leaders of the partitions. v2 the transaction's version.
"""

from tidelog.kernel.limits import FEW_ELEMENTS_MAX
from tidelog.wire.primitives import BOOL, INT8, INT16, INT32, INT64, STRING
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class WritableTxnMarkerTopic:
    name: str = row(STRING)
    partition_indexes: list[int] = row(array(INT32))


@message
class WritableTxnMarker:
    producer_id: int = row(INT64)
    producer_epoch: int = row(INT16)
    transaction_result: bool = row(BOOL)
    topics: list[WritableTxnMarkerTopic] = row(array(WritableTxnMarkerTopic))
    coordinator_epoch: int = row(INT32)
    transaction_version: int = row(INT8, "2+")


@message
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = row(array(WritableTxnMarker))


@message
class WritableTxnMarkerPartitionResult:
    partition_index: int = row(INT32)
    error_code: int = row(INT16)


@message
class WritableTxnMarkerTopicResult:
    name: str = row(STRING)
    partitions: list[WritableTxnMarkerPartitionResult] = row(
        array(WritableTxnMarkerPartitionResult)
    )


@message
class WritableTxnMarkerResult:
    producer_id: int = row(INT64)
    topics: list[WritableTxnMarkerTopicResult] = row(array(WritableTxnMarkerTopicResult))


@message
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = row(array(WritableTxnMarkerResult))


API = ApiSchema(
    key=27,
    name="WriteTxnMarkers",
    versions=range(1, 3),
    flexible_from=1,
    request=WriteTxnMarkersRequest,
    response=WriteTxnMarkersResponse,
    elements_max=FEW_ELEMENTS_MAX,
)
