"""CreateTopics (key 19) and DeleteTopics (key 20): the coordinator decides, we pass them on.

Whichever broker a client asks, it gets the coordinator's answer; and that comes only when every
live broker has taken the change into its own metadata.
"""

from collections.abc import Callable
from typing import Any, Final

from tidelog.kernel import limits
from tidelog.kernel.instant import Instant, ms
from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k19_create_topics as creation
from tidelog.wire.messages import k20_delete_topics as deletion

_TIMEOUT_MS_MIN: Final = 1_000
"""A client that asks for less would time out on its own before it could learn anything."""
_DISABLED_VERSION: Final = 3
"""From here on clients of DeleteTopics know TOPIC_DELETION_DISABLED."""


def create_topics(call: Call, request: creation.CreateTopicsRequest) -> None:
    def refusal(code: ErrorCode) -> creation.CreateTopicsResponse:
        return creation.CreateTopicsResponse(
            topics=[
                creation.CreatableTopicResult(name=topic.name, error_code=code)
                for topic in request.topics
            ]
        )

    forward(call, request.timeout_ms, refusal)


def delete_topics(call: Call, request: deletion.DeleteTopicsRequest) -> object | None:
    def refusal(code: ErrorCode) -> deletion.DeleteTopicsResponse:
        named = [(name, None) for name in request.topic_names]
        asked = named + [(topic.name, topic.topic_id) for topic in request.topics]
        rows: list[deletion.DeletableTopicResult] = []
        for name, topic_id in asked:
            row = deletion.DeletableTopicResult(name=name, error_code=code)
            if topic_id is not None:
                row.topic_id = topic_id
            rows.append(row)
        return deletion.DeleteTopicsResponse(responses=rows)

    if not call.broker.settings["delete.topic.enable"]:
        is_told = call.version >= _DISABLED_VERSION
        code = ErrorCode.TOPIC_DELETION_DISABLED if is_told else ErrorCode.INVALID_REQUEST
        return refusal(code)
    forward(call, request.timeout_ms, refusal)
    return None


def forward(
    call: Call,
    timeout_ms: int,
    refusal: Callable[[ErrorCode], Any],
    *,
    frame: bytes | None = None,
    merge: Callable[[Any], Any] | None = None,
) -> None:
    """Answer with the coordinator's frame; where none comes, with the API's own error.

    Another `frame` may go in the place of the client's own; `merge` makes the answer of what the
    coordinator says to it.
    """

    def done(answer: bytes | ErrorCode) -> None:
        if call.abandoned:
            return
        if isinstance(answer, ErrorCode):
            call.answer(refusal(answer))
        elif merge is not None:
            _, message = decode_response(call.api, call.version, memoryview(answer))
            call.answer(merge(message))
        else:
            call.answer_frame(answer)

    wait_ms = min(max(timeout_ms, _TIMEOUT_MS_MIN), limits.FORWARD_TIMEOUT_MS)
    deadline = Instant(call.now + ms(wait_ms))
    # The frame lies in the connection's buffer, which the next request overwrites.
    asked = bytes(call.frame) if frame is None else frame
    call.broker.link.forward(call.api.key, asked, call.client.address, deadline, call.later(done))


CREATE_TOPICS = Route(creation.API, range(2, 8), create_topics, "decided by the coordinator")
DELETE_TOPICS = Route(deletion.API, range(1, 7), delete_topics, "by name, from v6 also by id")
