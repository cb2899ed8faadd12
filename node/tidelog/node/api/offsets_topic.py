"""Makes `__consumer_offsets` when the first client looks for a group's coordinator."""

from collections.abc import Callable
from typing import Final

from tidelog.kernel.instant import Instant, ms
from tidelog.node.api.call import Call
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import encode_request, joined
from tidelog.wire.messages.k19_create_topics import (
    API,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

_VERSION: Final = 7
_WAIT_MS: Final = 2_000
_MANY: Final = 3


def create(call: Call, done: Callable[[], None]) -> None:
    """Have the coordinator make it; `done` looks whether it is there now."""
    broker = call.broker
    settings, name = broker.settings, "offsets.topic.replication.factor"
    replicas = settings[name]
    if name not in broker.configs.given:
        replicas = min(replicas, len(broker.image.brokers))
    configs = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(settings["offsets.topic.segment.bytes"]),
    }
    if replicas >= _MANY:
        # What a group was told shall survive the loss of one broker.
        configs["min.insync.replicas"] = "2"
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=OFFSETS_TOPIC,
                num_partitions=settings["offsets.topic.num.partitions"],
                replication_factor=replicas,
                configs=[CreatableTopicConfig(name=key, value=configs[key]) for key in configs],
            )
        ],
        timeout_ms=_WAIT_MS,
    )
    frame = joined(encode_request(API, _VERSION, 0, None, request))[4:]

    def answered(_answer: bytes | ErrorCode) -> None:
        if not call.abandoned:
            done()  # another client may have been quicker: all that counts is that it is there

    deadline = Instant(call.now + ms(_WAIT_MS))
    broker.link.forward(API.key, frame, call.client.address, deadline, answered)
