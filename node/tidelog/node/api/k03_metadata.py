"""Metadata (key 3), versions 0-13. v4 auto creation, v7 leader epochs, v9 flexible, v10 topic ids.

A topic that is missing and may be created is created before the answer, which waits for it: the
client need not come again. There is no authorizer: where operations are asked, all are allowed.

After a broker's death an answer waits until it is decided who leads what that broker led.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from tidelog.kernel.ids import NO_LEADER, ZERO_UUID, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.topic_names import INTERNAL_TOPICS, fault_of_name
from tidelog.node.api import operations
from tidelog.node.api.broker import Broker
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parting, Parts, Turn, go_on, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.node.replica.waiting import BROKERS, Waiter
from tidelog.wire.compile import writer
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.messages import k19_create_topics as creation
from tidelog.wire.messages.k03_metadata import (
    API,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog.wire.metadata_records import PartitionView

_ALL_IS_NULL_VERSION: Final = 1
_IDS_VERSION: Final = 10
_ASK_BY_ID_VERSION: Final = 12
_NEWS_WAIT_MS: Final = 500
"""What the coordinator has for deciding who leads after a death."""
_CREATE_WAIT_MS: Final = 2_000
_CREATE_VERSION: Final = 7
_CREATED_NAMES_MAX: Final = 100
"""A request creates no more topics than this; the rest is made when it is asked for again."""

_Found = TopicView | MetadataResponseTopic
"""A topic, or why it is refused."""


def metadata(call: Call, request: MetadataRequest) -> object | None:
    if not call.broker.someone_left():
        return in_parts(call, _told(call, request))

    def wake(_now: Instant) -> None:
        if not call.abandoned:
            go_on(call, _told(call, request))

    # Who asks now has most likely lost its leader: an answer of before would send it back there.
    deadline = Instant(call.now + ms(_NEWS_WAIT_MS))
    ready = partial(_is_news, call.broker)
    call.park(Waiter((BROKERS,), deadline, wake, missing=0, ready=ready))
    return None


def _is_news(broker: Broker) -> bool:
    return not broker.someone_left()


def _told(call: Call, request: MetadataRequest) -> Parts:
    turn, asked = Turn(), request.topics
    if asked is None or (call.version < _ALL_IS_NULL_VERSION and not asked):
        everything = list(call.broker.image.names.values())
        return (yield from _answered(call, request, everything, turn))
    if (yield from _is_malformed(call, asked, turn)):
        refused = (
            # Before version 12 a refused name cannot be null; Kafka says it is empty, always.
            _refusal(topic.name or "", topic.topic_id, ErrorCode.INVALID_REQUEST)
            for topic in asked
        )
        return (yield from _answered(call, request, refused, turn))
    once = yield from _once(asked, turn)
    missing = yield from _to_create(call, request, once, turn)
    if missing:
        _create(call, request, once, missing)
        return None
    found = (_asked_topic(call.broker.image, topic, {}) for topic in once)
    return (yield from _answered(call, request, found, turn))


def _is_malformed(call: Call, asked: list[MetadataRequestTopic], turn: Turn) -> Parting[bool]:
    if call.version < _IDS_VERSION:
        return False
    fits = _is_named_or_has_id if call.version >= _ASK_BY_ID_VERSION else _is_only_named
    for topic in asked:
        if turn.is_over():
            yield None
        if not fits(topic):
            return True
    return False


def _is_named_or_has_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is not None or topic.topic_id != ZERO_UUID


def _is_only_named(topic: MetadataRequestTopic) -> bool:
    """By id may be asked from version 12 on, before that the id must be zero."""
    return topic.name is not None and topic.topic_id == ZERO_UUID


def _once(asked: list[MetadataRequestTopic], turn: Turn) -> Parting[list[MetadataRequestTopic]]:
    """Each topic once, however often it was asked for: an answer must not outgrow the cluster."""
    once: dict[tuple[str | None, Uuid], MetadataRequestTopic] = {}
    for topic in asked:
        if turn.is_over():
            yield None
        once[topic.name, topic.topic_id] = topic
    return list(once.values())


def _to_create(
    call: Call, request: MetadataRequest, asked: list[MetadataRequestTopic], turn: Turn
) -> Parting[list[str]]:
    broker = call.broker
    missing: list[str] = []
    if not (request.allow_auto_topic_creation and broker.settings["auto.create.topics.enable"]):
        return missing
    for topic in asked:
        if len(missing) == _CREATED_NAMES_MAX:
            break
        if turn.is_over():
            yield None
        name = topic.name
        if (
            name is not None
            and topic.topic_id == ZERO_UUID
            and name not in broker.image.names
            and name not in INTERNAL_TOPICS
            and fault_of_name(name) is None
        ):
            missing.append(name)
    return missing


def _create(
    call: Call, request: MetadataRequest, asked: list[MetadataRequestTopic], missing: list[str]
) -> None:
    """Have the coordinator make the topics, then answer with what became of them."""
    wanted = creation.CreateTopicsRequest(
        topics=[
            creation.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
            for name in missing
        ],
        timeout_ms=_CREATE_WAIT_MS,
    )
    frame = joined(encode_request(creation.API, _CREATE_VERSION, 0, None, wanted))[4:]

    def done(answer: bytes | ErrorCode) -> None:
        if not call.abandoned:
            faults = _faults(missing, answer)
            found = (_asked_topic(call.broker.image, topic, faults) for topic in asked)
            go_on(call, _answered(call, request, found, Turn()))

    deadline = Instant(call.now + ms(_CREATE_WAIT_MS))
    call.broker.link.forward(
        creation.API.key, frame, call.client.address, deadline, call.later(done)
    )


def _faults(missing: list[str], answer: bytes | ErrorCode) -> dict[str, ErrorCode]:
    """Why topics could not be made. One that another request made meanwhile is no fault."""
    if isinstance(answer, ErrorCode):
        return dict.fromkeys(missing, ErrorCode.LEADER_NOT_AVAILABLE)
    try:
        _, created = decode_response(creation.API, _CREATE_VERSION, memoryview(answer))
    except WireError:
        return dict.fromkeys(missing, ErrorCode.LEADER_NOT_AVAILABLE)
    return {
        result.name: ErrorCode(result.error_code)
        for result in created.topics
        if result.error_code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    }


def _asked_topic(
    image: MetadataImage, asked: MetadataRequestTopic, faults: dict[str, ErrorCode]
) -> _Found:
    name = asked.name
    if asked.topic_id != ZERO_UUID:
        view = image.topics.get(asked.topic_id)
        if view is None:
            return _refusal(None, asked.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        return view
    assert name is not None
    view = image.names.get(name)
    if view is not None:
        return view
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if fault_of_name(name) is not None:
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    return _refusal(name, ZERO_UUID, faults.get(name, code))


def _refusal(name: str | None, topic_id: Uuid, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id)


def _rows(
    call: Call, request: MetadataRequest, found: Iterable[_Found], turn: Turn
) -> Parting[list[Any]]:
    """Topics as the bytes that this version has for them, and refusals."""
    broker = call.broker
    is_asked = request.include_topic_authorized_operations
    allowed = operations.ON_TOPIC if is_asked else operations.NOT_ASKED
    write = writer(MetadataResponseTopic, call.version, flexible=API.is_flexible(call.version))

    def make(view: TopicView) -> MetadataResponseTopic:
        turn.take(len(view.partitions))
        return _topic(broker.image, allowed, view)

    form = (write, is_asked)
    rows: list[Any] = []
    for topic in found:
        if turn.is_over():
            yield None
        if isinstance(topic, TopicView):
            rows.append(broker.topic_blocks.encoded(broker.image, topic, form, make))
        else:
            topic.topic_authorized_operations = allowed
            rows.append(topic)
    return rows


def _topic(image: MetadataImage, allowed: int, view: TopicView) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=view.name,
        topic_id=view.id,
        is_internal=view.name in INTERNAL_TOPICS,
        partitions=[_partition(image, index, row) for index, row in enumerate(view.partitions)],
        topic_authorized_operations=allowed,
    )


def _partition(image: MetadataImage, index: int, row: PartitionView) -> MetadataResponsePartition:
    # A leader that is not in the list of brokers would have clients ask for metadata in a loop.
    led = row.leader != NO_LEADER and image.is_alive(row.leader)
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=row.leader if led else NO_LEADER,
        leader_epoch=row.leader_epoch,
        replica_nodes=list(row.replicas),
        isr_nodes=list(row.isr),
        offline_replicas=image.offline(row),
    )


def _answered(
    call: Call, request: MetadataRequest, found: Iterable[_Found], turn: Turn
) -> Parting[MetadataResponse]:
    topics = yield from _rows(call, request, found, turn)
    image = call.broker.image
    return MetadataResponse(
        # Listed last: each leader of the rows above is in it, also one that has left since.
        brokers=[
            MetadataResponseBroker(
                node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack
            )
            for broker in call.broker.listed.at(call.now, image)
        ],
        cluster_id=image.cluster_id,
        # Any live broker will do: what it does not own it forwards.
        controller_id=call.broker.me,
        topics=topics,
        cluster_authorized_operations=(
            operations.ON_CLUSTER
            if request.include_cluster_authorized_operations
            else operations.NOT_ASKED
        ),
    )


ROUTE = Route(API, range(14), metadata, "topic ids, automatic creation")
