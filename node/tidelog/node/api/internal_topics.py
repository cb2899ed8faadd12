"""Makes the cluster's own topics when the first client looks for a coordinator.

`__consumer_offsets` keeps groups, `__transaction_state` transactions: whoever leads the partition
that a name falls on speaks for its coordinator.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from tidelog.kernel.instant import Instant, ms
from tidelog.node.api.broker import Broker
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
from tidelog.wire.transactions import STATE_TOPIC

_VERSION: Final = 7
_WAIT_MS: Final = 2_000
_MANY: Final = 3


class InternalTopic(NamedTuple):
    """One of the cluster's own topics."""

    name: str
    settings: str
    """How the names of the settings begin that say what it is made like."""
    whose: str
    """What its partitions keep."""
    configs: Mapping[str, str]


OFFSETS: Final = InternalTopic(
    OFFSETS_TOPIC, "offsets.topic", "group", {"compression.type": "producer"}
)
STATE: Final = InternalTopic(
    STATE_TOPIC,
    "transaction.state.log",
    "transactional id",
    {"unclean.leader.election.enable": "false"},
)


def create(call: Call, topic: InternalTopic, done: Callable[[], None]) -> None:
    """Have the coordinator make it; `done` looks whether it is there now."""
    broker = call.broker
    settings = broker.settings
    replicas = _replicas(broker, f"{topic.settings}.replication.factor")
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(settings[f"{topic.settings}.segment.bytes"]),
        **_in_sync(broker, topic, replicas),
        **topic.configs,
    }
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=settings[f"{topic.settings}.num.partitions"],
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
    broker.link.forward(API.key, frame, call.client.address, deadline, call.later(answered))


def _replicas(broker: Broker, name: str) -> int:
    """As many as the setting says; unless it was given, not more than there are brokers."""
    wanted = int(broker.settings[name])
    return wanted if name in broker.configs.given else min(wanted, len(broker.image.brokers))


def _in_sync(broker: Broker, topic: InternalTopic, replicas: int) -> dict[str, str]:
    """What anybody was told shall survive the loss of one broker, where there are enough."""
    name = f"{topic.settings}.min.isr"
    if name in broker.configs.given:
        return {"min.insync.replicas": str(broker.settings[name])}
    return {"min.insync.replicas": "2"} if replicas >= _MANY else {}
