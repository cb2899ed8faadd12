"""What a DeleteTopics request names, whatever its version, and whether that can be meant."""

from tidelog.kernel.ids import ZERO_UUID
from tidelog.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState


def asked_topics(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """The topics that a request of any version names."""
    return [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]


def fault_of_state(state: DeleteTopicState) -> str | None:
    """Why the whole request is refused; None if this topic is named as it should be."""
    if state.name is None and state.topic_id == ZERO_UUID:
        return "Neither topic name nor id were specified."
    if state.name is not None and state.topic_id != ZERO_UUID:
        return "You may not specify both topic name and topic id."
    return None
