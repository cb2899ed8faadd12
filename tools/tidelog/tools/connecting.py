"""From `--bootstrap` or `--cluster` to a client, and from its failures to sentences."""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import click

from tidelog.clients.asking import Address
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import TopicView, refresh
from tidelog.clients.failures import UnreachableError
from tidelog.clients.settings import ConnectionSettings
from tidelog.clients.transport import Transport
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import s
from tidelog.tools.output import NOT_FOUND, UNREACHABLE, Target, fail, nearest, not_found
from tidelog.wire.errors import ErrorCode, Rejected

PORT_DEFAULT = 9092
CONNECT_TIMEOUT_NS = s(5)
ANSWER_TIMEOUT_NS = s(30)
MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@contextlib.contextmanager
def connected(target: Target, *, first_answer_ns: int = ANSWER_TIMEOUT_NS) -> Iterator[Client]:
    """A client that knows the cluster's brokers; its connections end with the block."""
    addresses = [address(text) for text in target.servers()]
    if not addresses:
        raise click.UsageError("--bootstrap names no broker: write HOST:PORT,…")
    transport = Transport(ConnectionSettings("tidelog-cli", CONNECT_TIMEOUT_NS))
    with contextlib.closing(transport):
        client = Client(transport, addresses, timeout_ns=ANSWER_TIMEOUT_NS)
        try:
            client.connect(first_answer_ns)
        except UnreachableError as error:
            fail(f"{error}: check that the cluster runs and that --bootstrap is right", UNREACHABLE)
        yield client


def address(text: str) -> Address:
    """`host`, `host:port`, `[v6]:port`; a wrong one is wrong usage."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(PORT_DEFAULT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65_536:
        raise click.UsageError(f"broker {text!r}: must be HOST:PORT, with a port of 1 to 65535")
    return Address(host, int(port))


def known_topics(client: Client, names: Iterable[str]) -> list[TopicView]:
    """The topics of these names as the cluster has them now; the command ends where one is not."""
    asked = list(dict.fromkeys(names))
    client.run(refresh(client.view, asked))
    for name in asked:
        error = client.view.errors.get(name)
        if error in MISSING or (error is None and name not in client.view.topics):
            client.run(refresh(client.view, None))
            raise not_found("topic", name, client.view.topics, see="tidelog topic list")
        if error is ErrorCode.INVALID_TOPIC_EXCEPTION:
            fail(f"{name!r} is no name of a topic{nearest(name, client.view.topics)}", NOT_FOUND)
        if error is not None:
            raise Rejected(error, f"topic {name!r}")
    return [client.view.topics[name] for name in asked]


def check_partition(topic: TopicView, number: int) -> None:
    """The command ends where the topic does not have this partition."""
    if number in topic.partitions:
        return
    last = len(topic.partitions) - 1
    there = "only partition 0" if last == 0 else f"partitions 0 to {last}"
    fail(f"topic {topic.name!r} has no partition {number}: it has {there}", NOT_FOUND)


def known_places(client: Client, texts: Sequence[str]) -> list[TopicPartition]:
    """`orders` is all its partitions, `orders:3` one; the command ends where one is not there."""
    named = [_place(text) for text in texts]
    if not named:
        return []
    topics = {one.name: one for one in known_topics(client, [name for name, _ in named])}
    found: dict[TopicPartition, None] = {}
    for name, number in named:
        if number is not None:
            check_partition(topics[name], number)
        numbers = topics[name].partitions if number is None else [number]
        found.update({(name, Partition(one)): None for one in numbers})
    return list(found)


def _place(text: str) -> tuple[str, int | None]:
    name, colon, number = text.rpartition(":")
    if not colon:
        return text, None
    if not (number.isascii() and number.isdecimal()):
        raise click.UsageError(f"{text!r}: must be TOPIC or TOPIC:PARTITION")
    return name, int(number)
