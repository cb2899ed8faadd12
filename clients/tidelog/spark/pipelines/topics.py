"""What the driver itself asks of a cluster: topics, their partitions, where they begin and end."""

import re
import time
from collections.abc import Iterable, Mapping

from tidelog.clients.admin.configs import Kind, Resource, describe_configs
from tidelog.clients.admin.offsets import END, START, list_offsets
from tidelog.clients.admin.topics import NewTopic, create_topics, wait_for_topics
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.spark.connections import client_of
from tidelog.spark.offsets import Positions
from tidelog.spark.options import Mode, OptionError, Subscribed, source_options
from tidelog.spark.pipelines.failures import NOT_FOUND, PipelineError, UsageError
from tidelog.spark.planning import find_partitions
from tidelog.wire.errors import ErrorCode, Rejected

_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SETTLE_S = 10.0
_LOOK_S = 0.05


def connect(bootstrap: str) -> Client:
    """The driver's client; UnreachableError where nobody answers."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": "-"}
    try:
        connection = source_options(given, Mode.BATCH).connection
    except OptionError as error:
        said = str(error).replace("option kafka.bootstrap.servers", "--bootstrap")
        raise UsageError(said) from None
    assert connection is not None, "brokers are named"
    return client_of(connection)


def partitions_of(client: Client, topics: str) -> list[TopicPartition]:
    """All of the topics, which have commas between them."""
    names = tuple(topics.split(","))
    for name in names:
        check_topic_name(name)
    found = client.run(find_partitions(client.view, Subscribed(names)))
    if found.missing:
        raise PipelineError(f"there is no topic {found.missing[0]!r}", NOT_FOUND)
    return list(found.partitions)


def check_topic_name(name: str) -> None:
    """UsageError where no cluster has such a topic."""
    if not _TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise UsageError(
            f"{name!r} is not a valid topic name: take 1 to 249 letters, digits, dots, underscores "
            "and hyphens, and a comma between two topics"
        )


def partition_counts(partitions: Iterable[TopicPartition]) -> dict[str, int]:
    """By topic."""
    counts: dict[str, int] = {}
    for topic, _ in partitions:
        counts[topic] = counts.get(topic, 0) + 1
    return counts


def ends(client: Client, partitions: Iterable[TopicPartition], isolation: Isolation) -> Positions:
    found = client.run(list_offsets(client.view, dict.fromkeys(partitions, END), isolation))
    return {one: where.offset for one, where in found.items()}


def settled_ends(client: Client, partitions: Iterable[TopicPartition]) -> Positions:
    """Up to where readers of committed records get. A cluster may answer the end of a transaction
    before it has written all its markers; so this waits a while for open ones."""
    places, until = [*partitions], time.monotonic() + _SETTLE_S
    while True:
        committed = ends(client, places, Isolation.READ_COMMITTED)
        is_settled = committed == ends(client, places, Isolation.READ_UNCOMMITTED)
        if is_settled or time.monotonic() > until:
            return committed
        time.sleep(_LOOK_S)


def compacted(client: Client, topics: Iterable[str]) -> set[str]:
    """Those whose older records of a key are removed."""
    asked = [Resource(Kind.TOPIC, topic) for topic in sorted(set(topics))]
    found = client.run(describe_configs(asked)) if asked else {}
    return {
        resource.name
        for resource, entries in found.items()
        for one in entries
        if one.name == "cleanup.policy" and "compact" in (one.value or "")
    }


def starts(client: Client, partitions: Iterable[TopicPartition]) -> Positions:
    wanted = dict.fromkeys(partitions, START)
    found = client.run(list_offsets(client.view, wanted, Isolation.READ_UNCOMMITTED))
    return {one: where.offset for one, where in found.items()}


def topic_partitions(counts: Mapping[str, int]) -> list[TopicPartition]:
    return [(topic, Partition(n)) for topic, count in counts.items() for n in range(count)]


def ensure_topics(client: Client, counts: Mapping[str, int], replicas: int = -1) -> None:
    """Create those that are not there; PipelineError where one has other partitions."""
    for name in counts:
        check_topic_name(name)
    client.run(refresh(client.view, list(counts)))
    new = []
    for name, count in counts.items():
        there = client.view.topics.get(name)
        if there is None:
            new.append(NewTopic(name, count, replicas))
        elif len(there.partitions) < count:
            raise PipelineError(
                f"topic {name!r} has {len(there.partitions)} partitions, {count} are needed: "
                f"tidelog topic alter {name} --partitions {count}"
            )
    if not new:
        return
    for done in client.run(create_topics(client.view, new)):
        if done.code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
            raise Rejected(done.code, f"topic {done.name!r}: {done.detail}")
    client.run(wait_for_topics(client.view, [one.name for one in new]))
