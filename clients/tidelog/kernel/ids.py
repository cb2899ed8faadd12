"""Names for the numbers that travel through the cluster: the type checker tells them apart."""

import base64
from collections.abc import Iterable
from typing import NewType

BrokerId = NewType("BrokerId", int)
Partition = NewType("Partition", int)
Offset = NewType("Offset", int)
Epoch = NewType("Epoch", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
RequestId = NewType("RequestId", int)
Incarnation = NewType("Incarnation", int)
"""One life of one process: it never repeats within a data directory."""

Uuid = NewType("Uuid", bytes)
"""Sixteen raw bytes; `uuid_text` gives Kafka's form."""

ZERO_UUID = Uuid(bytes(16))
NO_LEADER = BrokerId(-1)
NO_EPOCH = Epoch(-1)
NO_OFFSET = Offset(-1)
NO_PRODUCER_ID = ProducerId(-1)
COORDINATOR_ID = BrokerId(3000)
TRANSACTIONS_ID = BrokerId(3001)
"""The transaction coordinator, where it stands among brokers; clients never see it."""

TopicPartition = tuple[str, Partition]


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """As most requests name partitions; all stays in its order.

    >>> by_topic([("t", 0), ("u", 2), ("t", 1)])
    {'t': [0, 1], 'u': [2]}
    """
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def uuid_text(uuid: Uuid) -> str:
    """Kafka's text form: base64url without padding, 22 characters.

    >>> uuid_text(ZERO_UUID)
    'AAAAAAAAAAAAAAAAAAAAAA'
    """
    assert len(uuid) == 16, len(uuid)
    return base64.urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The inverse of `uuid_text`; ValueError where the text is not one.

    >>> uuid_from_text("AAAAAAAAAAAAAAAAAAAAAA") == ZERO_UUID
    True
    """
    if len(text) != 22:
        raise ValueError(f"{text!r} is not a uuid: it must have 22 characters of base64url")
    return Uuid(base64.b64decode(text + "==", altchars=b"-_", validate=True))
