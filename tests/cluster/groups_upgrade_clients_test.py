"""A group goes over to the consumer protocol and back, member by member, by unmodified clients.

Nobody stops the group: whoever is in it reads on. What each was told is held against what was
produced and what the coordinator wrote, as in the random run of two groups.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from harness.faults.chaos import log_bytes
from harness.processes.cluster import Cluster, until
from harness.processes.group_checks import (
    LoggedGroup,
    failures,
    logged_of,
    missing_commits,
    not_committed,
    unprocessed,
    wrong_owners,
    wrong_reads,
)
from harness.processes.group_feed import PARTITIONS, TOPIC, Feed
from harness.processes.group_soak import OFFSETS_PARTITIONS, SETTINGS, Group
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

KINDS = ("classic", "kafka-python", "aiokafka")
"""None that is cooperative: librdkafka's assignor puts data of its own into what it gives."""
NAME = "rolled"
PATIENCE_S = 60.0


def test_a_group_is_rolled_up_and_down_while_it_reads(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=1, settings=SETTINGS) as cluster:
        cluster.done("topic", "create", TOPIC, "--partitions", str(PARTITIONS))
        group, feed = Group(cluster, NAME, [KINDS]), Feed(cluster.bootstrap)
        feed.start()
        try:
            until(group.is_shared, "all share", PATIENCE_S)
            for there in rolled(KINDS):
                change(group, there)
                until(group.is_shared, f"{there} share", PATIENCE_S)
                wanted = "consumer" if "consumer" in there else "classic"
                assert kind_of(cluster) == wanted, there
                more(group)
            feed.finish()
            until(partial(group.has_read, feed.sent), "all is committed", PATIENCE_S)
            for band in group.bands:
                band.end()
                band.wait()
        finally:
            feed.finish()
            for band in group.bands:
                band.close()
        cluster.stop()
        group.look()
        place = partition_of(NAME, OFFSETS_PARTITIONS)
        logged = logged_of(NAME, log_bytes(cluster, 0, OFFSETS_TOPIC, place), changes=True)
        assert [*feed.failed, *wrong_in(group, logged, feed.sent)] == []


def rolled(kinds: Sequence[str]) -> list[tuple[str, ...]]:
    """One after the other up, and one after the other down again."""
    up = [("consumer",) * at + tuple(kinds[at:]) for at in range(1, len(kinds) + 1)]
    down = [tuple(kinds[:at]) + ("consumer",) * (len(kinds) - at) for at in range(1, len(kinds))]
    return [*up, *down, tuple(kinds)]


def change(group: Group, there: Sequence[str]) -> None:
    """One leaves, and another comes for it."""
    (band,) = group.bands
    (going,) = (Counter(band.kinds) - Counter(there)).elements()
    name = next(name for name, kind in band.members.items() if kind == going)
    band.leave(name)
    band.kinds = there
    band.fill()


def kind_of(cluster: Cluster) -> str:
    return str(cluster.done("group", "describe", NAME, "--state", "--json").document["type"])


def more(group: Group) -> None:
    """It commits more of every partition."""
    before = group.committed
    until(
        lambda: all(now > then for now, then in zip(group.look_far(), before, strict=True)),
        "every partition is read on",
        PATIENCE_S,
    )


def wrong_in(group: Group, logged: LoggedGroup, sent: Sequence[int]) -> list[str]:
    return [
        *failures(group.events),
        *not_committed(logged, sent),
        *logged.wrong,
        *wrong_owners(group.events),
        *wrong_reads(group.events),
        *missing_commits(group.events, logged),
        *unprocessed(group.events, logged.committed),
    ]
