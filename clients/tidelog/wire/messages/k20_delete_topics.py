"""DeleteTopics (key 20), versions 1-6, flexible from 4.

v5 error messages, v6 topics by name or id.
"""

from tidelog.kernel.ids import Uuid
from tidelog.kernel.limits import DECIDED_ELEMENTS_MAX
from tidelog.wire.primitives import INT16, INT32, STRING, UUID
from tidelog.wire.schema import ApiSchema, array, message, row


@message
class DeleteTopicState:
    name: str | None = row(STRING, "6+", nullable="6+", default=None)
    topic_id: Uuid = row(UUID, "6+")


@message
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = row(array(DeleteTopicState), "6+")
    topic_names: list[str] = row(array(STRING), "0-5")
    timeout_ms: int = row(INT32)


@message
class DeletableTopicResult:
    name: str | None = row(STRING, nullable="6+")
    topic_id: Uuid = row(UUID, "6+")
    error_code: int = row(INT16)
    error_message: str | None = row(STRING, "5+", nullable="5+", default=None)


@message
class DeleteTopicsResponse:
    throttle_time_ms: int = row(INT32)
    responses: list[DeletableTopicResult] = row(array(DeletableTopicResult))


API = ApiSchema(
    key=20,
    name="DeleteTopics",
    versions=range(1, 7),
    flexible_from=4,
    request=DeleteTopicsRequest,
    response=DeleteTopicsResponse,
    elements_max=DECIDED_ELEMENTS_MAX,
)
