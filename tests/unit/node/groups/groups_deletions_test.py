"""Committed offsets of deleted topics: when they are forgotten, and which must be kept."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import ME
from harness.machines.consumer_groups import SETTINGS, TopicsInMemory, topic_id
from harness.machines.group_bench import (
    GroupBench,
    commit,
    commit_request,
    elected_again,
    fetch_offsets,
)
from harness.machines.transactions import end_in_group, pend
from harness.simulation.clients import Asked
from harness.simulation.cluster import A, B, C, SimulatedCluster
from tidelog.kernel.ids import COORDINATOR_ID, BrokerId, Epoch, Partition, RequestId, Uuid
from tidelog.kernel.instant import Instant
from tidelog.node.groups import shard as shards
from tidelog.node.groups.group import Around
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.groups.records import NEVER, CommittedOffset, OffsetRecord, PendingOffset
from tidelog.node.groups.requests import FetchOffsets, ForgetDeletedTopics, OffsetsFound
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k08_offset_commit, k09_offset_fetch
from tidelog.wire.messages.k16_list_groups import API as LIST_GROUPS
from tidelog.wire.messages.k16_list_groups import ListGroupsRequest
from tidelog.wire.metadata_records import (
    ConfigChanged,
    PartitionCreated,
    PartitionView,
    ResourceKind,
    TopicCreated,
)

PRODUCER = 7


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path / "log0")


def listed(bench: GroupBench) -> set[str]:
    """Groups that the coordinator knows: one whose only offset is forgotten is not among them."""
    return {row.group_id for row in bench.ask(LIST_GROUPS, 4, ListGroupsRequest()).groups}


def test_a_topic_deleted_while_its_coordinator_loads_takes_its_offsets_along(
    bench: GroupBench,
) -> None:
    topic = bench.topic("t")
    commit(bench, "g", {"t": [77]})
    elected_again(bench, epoch=1)
    bench.delete(topic)
    bench.load()
    assert listed(bench) == set()
    bench.topic("t")
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): -1}


def test_a_topic_deleted_and_made_again_while_nobody_leads_takes_its_offsets_along(
    bench: GroupBench,
) -> None:
    topic = bench.topic("t")
    commit(bench, "g", {"t": [77]})
    commit(bench, "h", {"t": [78]})
    elected_again(bench, epoch=1)
    bench.delete(topic)
    bench.topic("t")
    bench.load()
    assert fetch_offsets(bench, "g") == {}
    assert listed(bench) == set()
    commit(bench, "g", {"t": [3]})
    elected_again(bench, epoch=2)
    bench.load()
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): 3}
    assert listed(bench) == {"g"}


def test_while_too_few_replicas_are_in_sync_the_next_topic_has_none_and_then_they_are_forgotten(
    tmp_path: Path,
) -> None:
    bench = GroupBench(tmp_path / "log0", partitions=0)
    view = PartitionView(
        leader=ME,
        leader_epoch=Epoch(0),
        partition_epoch=Epoch(0),
        replicas=(ME, BrokerId(1)),
        isr=(ME,),
    )
    groups = Uuid(b"the groups' own!")
    bench.replay(TopicCreated(groups, OFFSETS_TOPIC), PartitionCreated(groups, Partition(0), view))
    bench.load()
    topic = bench.topic("t")
    commit(bench, "g", {"t": [77]})

    def needs(count: str) -> None:
        kind = ResourceKind.TOPIC
        bench.replay(ConfigChanged(kind, OFFSETS_TOPIC, "min.insync.replicas", count))

    needs("2")
    replica, _ = bench.broker.replicas.led(OFFSETS_TOPIC, 0)
    end = replica.log.end
    bench.delete(topic)
    bench.topic("t")
    assert replica.log.end == end, "nothing can be kept now"
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): -1}
    assert fetch_offsets(bench, "g") == {}
    needs("1")
    assert listed(bench) == set()


def test_a_commit_without_a_topic_id_is_of_any_topic_of_the_name(bench: GroupBench) -> None:
    topic = bench.topic("t")
    request = commit_request("g", {"t": [1]}, retention_time_ms=3_600_000)
    bench.ask(k08_offset_commit.API, 4, request)  # its record has no room for the id
    elected_again(bench, epoch=1)
    bench.load()
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): 1}
    elected_again(bench, epoch=2)
    bench.delete(topic)
    bench.load()
    assert listed(bench) == set()


def test_what_an_open_transaction_commits_of_a_deleted_topic_is_nothing_to_the_next_one(
    bench: GroupBench,
) -> None:
    topic = bench.topic("t")
    assert pend(bench, "g", 77) is None
    elected_again(bench, epoch=1)
    bench.delete(topic)
    bench.topic("t")
    bench.load()
    asked = k09_offset_fetch.OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    wanted = k09_offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[asked])
    request = k09_offset_fetch.OffsetFetchRequest(groups=[wanted], require_stable=True)
    (group,) = bench.ask(k09_offset_fetch.API, 8, request).groups
    (row,) = group.topics[0].partitions
    assert (row.error_code, row.committed_offset) == (0, -1)
    end_in_group(bench, "g", PRODUCER, committed=True)
    assert fetch_offsets(bench, "g", t=1) == {("t", 0): -1}
    assert listed(bench) == set()


def test_a_thousand_offsets_are_forgotten_at_a_time(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "FORGOTTEN_AT_ONCE_MAX", 2)
    topic = bench.topic("t", 8)
    commit(bench, "g", {"t": range(8)})
    commit(bench, "h", {"t": range(8)})
    bench.delete(topic)
    assert listed(bench) == {"g", "h"}
    bench.later(1)
    assert listed(bench) == set()


class Coordinator:
    """The state of one coordinator, where topic `t` is `NOW` and was `THEN` before."""

    THEN = topic_id("before")
    NOW = topic_id("t")

    def __init__(self) -> None:
        settings = {
            **SETTINGS,
            "offsets.retention.check.interval.ms": 600_000,
            "offsets.retention.minutes": 10_080,
        }
        around = Around(settings, TopicsInMemory(t=1), lambda _now: 0, lambda _told: None)
        self.shard = shards.GroupShard(around)
        self.shard.loaded(Instant(0))

    def commit(self, topic: Uuid, offset: int) -> None:
        self.shard.replay(self._record(topic, offset))

    def pend(self, topic: Uuid, offset: int, producer_id: int = PRODUCER) -> None:
        self.shard.replay(PendingOffset(producer_id, 0, self._record(topic, offset)))

    def _record(self, topic: Uuid, offset: int) -> OffsetRecord:
        return OffsetRecord("g", "t", 0, CommittedOffset(offset, -1, "", 0, NEVER, topic))

    def forget(self) -> int:
        """How many tombstones were written."""
        records = self._decided(ForgetDeletedTopics()).records
        for record in records:
            self.shard.replay(record)
        return len(records)

    def fetch(self, *, require_stable: bool = False) -> int | ErrorCode:
        asked = FetchOffsets("g", None, -1, (("t", 0),), require_stable=require_stable)
        ((_, answer),) = self._decided(asked).replies
        assert isinstance(answer, OffsetsFound)
        ((_, _, found),) = answer.rows
        if isinstance(found, ErrorCode):
            return found
        return -1 if found is None else found.offset

    def _decided(self, request: object) -> Any:
        return self.shard.decide(Instant(0), RequestId(1), request)


def test_a_transaction_on_the_new_topic_is_kept_where_the_old_one_s_offset_is_still_there() -> None:
    one = Coordinator()
    one.commit(one.THEN, 77)
    one.pend(one.NOW, 5)
    assert one.forget() == 0
    assert one.fetch() == -1
    assert one.fetch(require_stable=True) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    one.shard.replay_marker(PRODUCER, committed=True)
    assert one.fetch() == 5


def test_a_transaction_on_the_old_topic_takes_nothing_from_the_new_one() -> None:
    one = Coordinator()
    one.pend(one.THEN, 77)
    one.commit(one.NOW, 5)
    one.pend(one.NOW, 6, producer_id=8)
    assert one.forget() == 0
    one.shard.replay_marker(8, committed=True)
    one.shard.replay_marker(PRODUCER, committed=True)
    assert one.fetch() == 6


def test_a_new_coordinator_knows_every_topic_that_its_log_has_offsets_of() -> None:
    """It follows the old one and has the offset before it has heard of the topic. Its election
    stands behind the topic's creation in the metadata, so it hears of both or of none."""
    cluster = SimulatedCluster()
    cluster.create(OFFSETS_TOPIC, A, B, C, partitions=1)
    cluster.until(lambda: cluster.leads(A, OFFSETS_TOPIC))
    cluster.network.cut_from(COORDINATOR_ID, B)
    topics = {life.me: life.link.image.names for life in cluster.lives.values()}
    cluster.begin_create(cluster.lives[A], "t", A, C)
    cluster.until(lambda: "t" in topics[A])

    def asked(broker: BrokerId, api: Any, version: int, request: object) -> Any:
        one = Asked(cluster.lives[broker], api, version, request, lambda: None)
        cluster.until(lambda: one.is_over)
        return one.answer

    def committed() -> bool:
        answer = asked(A, k08_offset_commit.API, 8, commit_request("g", {"t": [7]}))
        return bool(answer.topics[0].partitions[0].error_code == 0)

    cluster.until(committed)
    assert "t" not in topics[B]
    assert cluster.replica(B, OFFSETS_TOPIC).log.end == cluster.replica(A, OFFSETS_TOPIC).log.end
    cluster.kill(A)
    cluster.run(1_000)
    cluster.network.heal_link(COORDINATOR_ID, B, lose=False)
    cluster.until(lambda: cluster.leads(B, OFFSETS_TOPIC))
    topic = k09_offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    request = k09_offset_fetch.OffsetFetchRequest(group_id="g", topics=[topic])
    found: list[int] = []

    def fetched() -> bool:
        answer = asked(B, k09_offset_fetch.API, 7, request)
        if answer.error_code == 0:
            found.append(answer.topics[0].partitions[0].committed_offset)
        return bool(answer.error_code == 0)

    cluster.until(fetched)
    cluster.run(100)
    fetched()
    assert found == [7, 7]
