"""DeleteTopics: by name, from version 6 on by name or id.

A request that names one topic twice, in whatever way, deletes it not at all: its author and we
may mean different things.
"""

from collections import Counter
from collections.abc import Sequence

from tidelog.coordinator.settings import ControllerSettings
from tidelog.node.deleting import asked_topics, fault_of_state
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k20_delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tidelog.wire.metadata_records import TopicDeleted


def delete_topics(
    image: MetadataImage, settings: ControllerSettings, version: int, request: DeleteTopicsRequest
) -> tuple[tuple[TopicDeleted, ...], DeleteTopicsResponse]:
    if not settings.delete_enabled:
        code = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        raise Rejected(code, "Topic deletion is disabled: delete.topic.enable=false.")
    asked = asked_topics(request)
    _check_states(asked)
    deleted: list[TopicDeleted] = []
    results = []
    # One answer for each way of naming, in the order of the request.
    distinct = {(state.name, state.topic_id): state for state in asked}
    times = Counter((state.name, state.topic_id) for state in asked)
    named = Counter(topic.id for state in asked if (topic := _find(image, state)))
    for key, state in distinct.items():
        topic = _find(image, state)
        try:
            _check_once(state, same=times[key], named=named[topic.id] if topic else 0)
            deleted.append(TopicDeleted(_existing(topic, state).id))
        except Rejected as refused:
            results.append(_result(state, topic, refused.code, refused.detail))
        else:
            results.append(_result(state, topic, ErrorCode.NONE, None))
    return tuple(deleted), DeleteTopicsResponse(responses=results)


def _check_states(asked: Sequence[DeleteTopicState]) -> None:
    for state in asked:
        fault = fault_of_state(state)
        if fault is not None:
            raise Rejected(ErrorCode.INVALID_REQUEST, fault)


def _check_once(state: DeleteTopicState, *, same: int, named: int) -> None:
    if same > 1:
        kind = "id" if state.name is None else "name"
        raise Rejected(ErrorCode.INVALID_REQUEST, f"Duplicate topic {kind}.")
    if named > 1:
        raise Rejected(
            ErrorCode.INVALID_REQUEST,
            "The provided topic name maps to an ID that was already supplied.",
        )


def _find(image: MetadataImage, state: DeleteTopicState) -> TopicView | None:
    if state.name is not None:
        return image.names.get(state.name)
    return image.topics.get(state.topic_id)


def _existing(topic: TopicView | None, state: DeleteTopicState) -> TopicView:
    if topic is not None:
        return topic
    if state.name is None:
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    raise Rejected(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
    )


def _result(
    state: DeleteTopicState, topic: TopicView | None, code: ErrorCode, message: str | None
) -> DeletableTopicResult:
    refused = code is not ErrorCode.NONE
    return DeletableTopicResult(
        # Whoever asked by an id they may not use learns no name from a refusal.
        name=state.name if refused or topic is None else topic.name,
        topic_id=state.topic_id if refused or topic is None else topic.id,
        error_code=code,
        error_message=message,
    )
