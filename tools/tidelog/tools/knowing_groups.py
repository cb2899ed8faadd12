"""What `tidelog why group` knows: the coordinator, the group's own log, what brokers told of it.

By Kafka's protocol alone, of any cluster: how the group stands, who reads what, how far it is; and
out of `__consumer_offsets`, where the reader may read it, since when and how long ago. Why it
rebalanced stands in the logs of tidelog's own brokers only.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from tidelog.clients.admin.group_offsets import committed_offsets
from tidelog.clients.admin.groups import DescribedGroup, GroupMember, describe_group, list_groups
from tidelog.clients.admin.offsets import END, START, list_offsets, peek_offsets
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import ClusterView, refresh
from tidelog.clients.consumer.consumer import Consumer
from tidelog.clients.failures import ClientError
from tidelog.clients.settings import ConsumerSettings, Isolation
from tidelog.kernel.ids import Offset, Partition, TopicPartition, Uuid
from tidelog.kernel.instant import Instant, s
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.tools.connecting import connected
from tidelog.tools.group_log import GroupLog
from tidelog.tools.group_reasons import KnownGroup, Place
from tidelog.tools.group_story import Rebalance, rebalances_of
from tidelog.tools.output import Target, not_found
from tidelog.tools.supervisor.folder import find, is_held, run_in
from tidelog.tools.timeline import gather
from tidelog.wire.errors import Rejected, WireError

READING_NS: Final = s(5)
"""The group's log is a courtesy: one that cannot be read in so long is not read to its end."""


class _Asked(NamedTuple):
    """What the cluster itself says."""

    group: DescribedGroup | None
    places: Sequence[Place]
    log: GroupLog
    untold: str
    names: Sequence[str]
    """Of all groups, where this one is not there."""


def look(target: Target, name: str) -> KnownGroup:
    """Everything at this moment; the command ends where nobody knows the group."""
    rebalances = None if target.bootstrap else _told(target, name)
    if not target.bootstrap and not is_held(find(target.folder)):
        if not rebalances:
            raise target.not_running()
        return KnownGroup(
            name=name,
            now_ms=_now_ms(),
            group=None,
            generation=None,
            places=(),
            rebalances=rebalances,
            is_down=True,
        )
    asked = _ask(target, name)
    if asked.group is None and not rebalances:
        raise not_found("group", name, asked.names, see="tidelog group list")
    generations = tuple(asked.log.generations)
    epoch = None if asked.group is None else asked.group.epoch
    latest = generations[-1].number if generations else None
    return KnownGroup(
        name=name,
        now_ms=_now_ms(),
        group=asked.group,
        generation=latest if epoch is None else epoch,
        places=asked.places,
        rebalances=rebalances,
        generations=generations,
        untold=asked.untold,
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _told(target: Target, name: str) -> list[Rebalance]:
    """What is in the brokers' logs, also when the cluster is down."""
    folder = target.folder_of_data()
    run = run_in(folder) if is_held(folder) else None
    return rebalances_of(gather(run.run_id if run else None, folder / "logs"), name)


def _ask(target: Target, name: str) -> _Asked:
    with connected(target) as client:
        group = client.run(describe_group(client.view, name))
        if group is None:
            names = [one.name for one in client.run(list_groups(client.view))]
            return _Asked(None, (), GroupLog(name), "", names)
        log, untold = _read_log(client, name)
        return _Asked(group, _places(client, group, log), log, untold, ())


def _read_log(client: Client, name: str) -> tuple[GroupLog, str]:
    """The group's partition of `__consumer_offsets`, and why it could not be read to its end."""
    log = GroupLog(name)
    try:
        client.run(refresh(client.view, [OFFSETS_TOPIC]))
        count = client.view.partition_count(OFFSETS_TOPIC)
        if not count:
            return log, f"{OFFSETS_TOPIC} cannot be seen"
        place = (OFFSETS_TOPIC, Partition(partition_of(name, count)))
        level = Isolation.READ_COMMITTED
        (start,) = client.run(list_offsets(client.view, {place: START}, level)).values()
        (end,) = client.run(list_offsets(client.view, {place: END}, level)).values()
        if not _read(client, log, place, start.offset, end.offset):
            return log, f"{OFFSETS_TOPIC}-{place[1]} takes too long to read"
    except (ClientError, Rejected, WireError) as error:
        return log, f"{OFFSETS_TOPIC} cannot be read: {error}"
    return log, ""


def _read(client: Client, log: GroupLog, place: TopicPartition, start: Offset, end: Offset) -> bool:
    """Whether all of it was read in time."""
    if start >= end:
        return True
    consumer = Consumer(client, ConsumerSettings(isolation=Isolation.READ_COMMITTED))
    consumer.assign({place: start})
    until = Instant(client.network.now() + READING_NS)
    while (fetched := consumer.poll(until)) is not None:
        for record in fetched.records():
            log.see(record)
        consumer.consumed(fetched)
        if consumer.position(place) >= end:
            return True
    return False


def _places(client: Client, group: DescribedGroup, log: GroupLog) -> list[Place]:
    committed = client.run(committed_offsets(client.view, group.name))
    owners = group.owners()
    found = sorted({*committed, *owners})
    ends = _ends(client, found)
    places = []
    for topic, partition in found:
        key = (topic, partition)
        current = committed[key].offset if key in committed else None
        commit = log.commits.get((topic, partition))
        places.append(
            Place(
                topic,
                partition,
                owners.get(key),
                _since(client.view, log, key, owners.get(key)),
                current,
                ends.get(key),
                None if commit is None or commit.offset != current else commit.at_ms,
            )
        )
    return places


def _ends(client: Client, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Where the logs end, as far as anybody tells now."""
    client.run(refresh(client.view, sorted({topic for topic, _ in places})))
    found = client.run(peek_offsets(client.view, dict.fromkeys(places, END)))
    return {place: one.offset for place, one in found.items()}


def _since(
    view: ClusterView, log: GroupLog, place: TopicPartition, owner: GroupMember | None
) -> int | None:
    if owner is None:
        return None
    topic, partition = place
    by_id: Uuid = view.topic_id(topic)
    by_name = log.since_ms((topic, partition))
    return by_name if by_name is not None else log.since_ms((by_id, partition))
