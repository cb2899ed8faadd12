"""CreateTopics (key 19) and DeleteTopics (key 20): the coordinator decides, we pass them on.

Whichever broker a client asks, it gets the coordinator's answer; and that comes only when every
live broker has taken the change into its own metadata.
"""

from collections.abc import Callable, Hashable
from typing import Any, Final

from tidelog.kernel import limits
from tidelog.node.api import pieces
from tidelog.node.api.call import Call
from tidelog.node.api.parts import ANYWAY, Parts, Turn, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.deleting import asked_topics, fault_of_state
from tidelog.node.metadata.image import TopicView
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k19_create_topics as creation
from tidelog.wire.messages import k20_delete_topics as deletion

_DISABLED_VERSION: Final = 3
"""From here on clients of DeleteTopics know TOPIC_DELETION_DISABLED."""
_BY_ID_VERSION: Final = 6
"""From here on topics are deleted by name or by id."""
_TOPIC_WEIGHT: Final = 10
TOO_MANY_PARTITIONS: Final = "Excessively large number of partitions per request."


def create_topics(call: Call, request: creation.CreateTopicsRequest) -> object | None:
    default = call.broker.settings["num.partitions"]
    if pieces.is_wide(_weight_of_new(topic, default) for topic in request.topics):
        return in_parts(call, _created(call, request, default))

    def refusal(code: ErrorCode) -> creation.CreateTopicsResponse:
        return creation.CreateTopicsResponse(
            topics=[_not_created(topic, code) for topic in request.topics]
        )

    forward(call, request.timeout_ms, refusal)
    return None


def _weight_of_new(topic: creation.CreatableTopic, default: int) -> int:
    texts = sum(1 + pieces.text_weight(config.value) for config in topic.configs)
    return _TOPIC_WEIGHT + _partitions_of_new(topic, default) + texts


def _partitions_of_new(topic: creation.CreatableTopic, default: int) -> int:
    """Not more than a topic may have: the controller refuses such a topic, and says why."""
    if topic.assignments:
        return len(topic.assignments)
    asked = default if topic.num_partitions == -1 else topic.num_partitions
    return min(max(0, asked), limits.PARTITIONS_PER_TOPIC_MAX)


def _not_created(
    topic: creation.CreatableTopic, code: ErrorCode, reason: str | None = None
) -> creation.CreatableTopicResult:
    return creation.CreatableTopicResult(
        name=topic.name, error_code=code, error_message=reason, configs=[]
    )


def _created(call: Call, request: creation.CreateTopicsRequest, default: int) -> Parts:
    """The topics of a wide request, in pieces; Kafka refuses it if it has too many partitions."""
    turn, partitions = Turn(), 0
    for topic in request.topics:
        if turn.is_over():
            yield ANYWAY
        partitions += _partitions_of_new(topic, default)
    if partitions > limits.PARTITIONS_PER_DECISION_MAX:
        return creation.CreateTopicsResponse(
            topics=[
                _not_created(topic, ErrorCode.POLICY_VIOLATION, TOO_MANY_PARTITIONS)
                for topic in request.topics
            ]
        )
    kind = pieces.Kind[creation.CreatableTopic](
        key=lambda topic: topic.name,
        weight=lambda topic: _weight_of_new(topic, default),
        request=lambda topics: creation.CreateTopicsRequest(
            topics=topics, timeout_ms=request.timeout_ms, validate_only=request.validate_only
        ),
        rows=lambda told: told.topics,
        refusal=_not_created,
        # The names of two topics may not differ in '.' and '_' alone, also where none is made.
        together=lambda topic: topic.name.replace(".", "_"),
    )
    done = yield from pieces.decided_in_pieces(call, request.timeout_ms, request.topics, kind)
    return creation.CreateTopicsResponse(topics=list(done.rows.values()))


def delete_topics(call: Call, request: deletion.DeleteTopicsRequest) -> object | None:
    if not call.broker.settings["delete.topic.enable"]:
        is_told = call.version >= _DISABLED_VERSION
        code = ErrorCode.TOPIC_DELETION_DISABLED if is_told else ErrorCode.INVALID_REQUEST
        return _none_deleted(asked_topics(request), code)
    asked = asked_topics(request)
    if pieces.is_wide(_weight_of_deleted(call, state) for state in asked):
        return in_parts(call, _deleted(call, request, asked))
    forward(call, request.timeout_ms, lambda code: _none_deleted(asked, code))
    return None


def _deleted(
    call: Call, request: deletion.DeleteTopicsRequest, asked: list[deletion.DeleteTopicState]
) -> Parts:
    """What a wide request names, in pieces. One topic that is not named well spoils all of it."""
    turn = Turn()
    for state in asked:
        if turn.is_over():
            yield ANYWAY
        fault = fault_of_state(state)
        if fault is not None:
            return _none_deleted(asked, ErrorCode.INVALID_REQUEST, fault)

    def some(states: list[deletion.DeleteTopicState]) -> deletion.DeleteTopicsRequest:
        if call.version >= _BY_ID_VERSION:
            return deletion.DeleteTopicsRequest(topics=states, timeout_ms=request.timeout_ms)
        names = [state.name for state in states if state.name is not None]
        return deletion.DeleteTopicsRequest(topic_names=names, timeout_ms=request.timeout_ms)

    def topic_or_way(state: deletion.DeleteTopicState) -> Hashable:
        topic = _topic_of(call, state)
        return (state.name, state.topic_id) if topic is None else topic.id

    kind = pieces.Kind[deletion.DeleteTopicState](
        key=lambda state: (state.name, state.topic_id),
        weight=lambda state: _weight_of_deleted(call, state),
        request=some,
        rows=lambda told: told.responses,
        refusal=_not_deleted,
        # Whoever names one topic in two ways may mean different things: none is deleted then.
        together=topic_or_way,
    )
    done = yield from pieces.decided_in_pieces(call, request.timeout_ms, asked, kind)
    return deletion.DeleteTopicsResponse(responses=list(done.rows.values()))


def _topic_of(call: Call, state: deletion.DeleteTopicState) -> TopicView | None:
    image = call.broker.image
    return image.topics.get(state.topic_id) if state.name is None else image.names.get(state.name)


def _weight_of_deleted(call: Call, state: deletion.DeleteTopicState) -> int:
    topic = _topic_of(call, state)
    return 2 if topic is None else 2 + len(topic.partitions)


def _none_deleted(
    asked: list[deletion.DeleteTopicState], code: ErrorCode, reason: str | None = None
) -> deletion.DeleteTopicsResponse:
    return deletion.DeleteTopicsResponse(
        responses=[_not_deleted(state, code, reason) for state in asked]
    )


def _not_deleted(
    state: deletion.DeleteTopicState, code: ErrorCode, reason: str | None = None
) -> deletion.DeletableTopicResult:
    return deletion.DeletableTopicResult(
        name=state.name, topic_id=state.topic_id, error_code=code, error_message=reason
    )


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

    deadline = pieces.deadline_of(call, timeout_ms)
    # The frame lies in the connection's buffer, which the next request overwrites.
    asked = bytes(call.frame) if frame is None else frame
    call.broker.link.forward(call.api.key, asked, call.client.address, deadline, call.later(done))


CREATE_TOPICS = Route(creation.API, range(2, 8), create_topics, "decided by the coordinator")
DELETE_TOPICS = Route(deletion.API, range(1, 7), delete_topics, "by name, from v6 also by id")
