"""What an admin client asks about the cluster and its topics, a frame in and an answer out."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import ME, HandlerBench
from tidelog.kernel.ids import NO_LEADER, BrokerId, Epoch, Incarnation, Offset, Partition
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import (
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k46_list_partition_reassignments,
    k60_describe_cluster,
    k75_describe_topic_partitions,
)
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerRegistered,
    PartitionChanged,
    PartitionView,
    StopKind,
)

DescribeTopics = k75_describe_topic_partitions.DescribeTopicPartitionsRequest
Cursor = k75_describe_topic_partitions.Cursor


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


def add_fenced_broker(bench: HandlerBench) -> None:
    bench.replay(
        BrokerRegistered(
            broker=BrokerId(7),
            incarnation=Incarnation(2),
            epoch=Offset(bench.image.offset),
            host="127.0.0.1",
            port=9099,
            rack="r7",
            log_dirs=(),
            stopped=StopKind.CLEAN,
            fenced=True,
        )
    )


def described_cluster(bench: HandlerBench, version: int, **asked: Any) -> Any:
    request = k60_describe_cluster.DescribeClusterRequest(**asked)
    return bench.ask(k60_describe_cluster.API, version, request)


@pytest.mark.parametrize("version", range(3))
def test_a_cluster_is_its_living_brokers_its_id_and_a_controller(
    bench: HandlerBench, version: int
) -> None:
    add_fenced_broker(bench)
    answer = described_cluster(bench, version)
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, "cluster", ME)
    assert [(b.broker_id, b.host, b.port, b.rack) for b in answer.brokers] == [
        (ME, "127.0.0.1", 9092, None)
    ]
    assert answer.cluster_authorized_operations == -(2**31)


def test_fenced_brokers_are_told_where_they_are_asked_for(bench: HandlerBench) -> None:
    add_fenced_broker(bench)
    answer = described_cluster(bench, 2, include_fenced_brokers=True)
    assert [(b.broker_id, b.rack, b.is_fenced) for b in answer.brokers] == [
        (ME, None, False),
        (7, "r7", True),
    ]


def test_everybody_may_do_everything_with_the_cluster(bench: HandlerBench) -> None:
    answer = described_cluster(bench, 0, include_cluster_authorized_operations=True)
    assert answer.cluster_authorized_operations == 8096  # as Kafka's own, without authorizer


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_a_broker_does_not_describe_controllers(
    bench: HandlerBench, kind: int, code: ErrorCode
) -> None:
    answer = described_cluster(bench, 1, endpoint_type=kind)
    assert (answer.error_code, answer.brokers, answer.controller_id) == (code, [], -1)
    assert answer.error_message


def described_topics(
    bench: HandlerBench, *names: str, cursor: tuple[str, int] | None = None, limit: int = 2000
) -> Any:
    request = DescribeTopics(
        topics=[k75_describe_topic_partitions.TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    return bench.ask(k75_describe_topic_partitions.API, 0, request)


def page_of(answer: Any) -> tuple[list[tuple[str, list[int]]], tuple[str, int] | None]:
    """Topics with their partitions, and the cursor."""
    cursor = answer.next_cursor
    topics = [(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics]
    return topics, None if cursor is None else (cursor.topic_name, cursor.partition_index)


def test_a_topic_is_described_with_all_that_is_known_of_it(bench: HandlerBench) -> None:
    topic_id = bench.topic("t", partitions=2)
    (topic,) = described_topics(bench, "t").topics
    assert (topic.error_code, topic.name, topic.topic_id) == (0, "t", topic_id)
    assert (topic.is_internal, topic.topic_authorized_operations) == (False, 3576)
    first = topic.partitions[0]
    assert (first.error_code, first.leader_id, first.leader_epoch) == (0, ME, 0)
    assert (first.replica_nodes, first.isr_nodes, first.offline_replicas) == ([ME], [ME], [])
    assert (first.eligible_leader_replicas, first.last_known_elr) == ([], [])


def test_a_partition_without_leader_has_no_error_here_but_offline_replicas(
    bench: HandlerBench,
) -> None:
    bench.lose_leader(bench.topic("t"))
    bench.replay(BrokerFenced(ME, bench.image.brokers[ME].epoch))
    (topic,) = described_topics(bench, "t").topics
    (row,) = topic.partitions
    assert (row.error_code, row.leader_id, row.offline_replicas) == (0, -1, [ME])


def test_replicas_that_may_still_become_leader_are_told(bench: HandlerBench) -> None:
    view = PartitionView((ME,), (), NO_LEADER, Epoch(1), Epoch(1), elr=(ME,))
    bench.replay(PartitionChanged(bench.topic("t"), Partition(0), view))
    (row,) = described_topics(bench, "t").topics[0].partitions
    assert (row.isr_nodes, row.eligible_leader_replicas, row.last_known_elr) == ([], [ME], [])


def test_topics_come_sorted_and_once_and_missing_ones_say_why(bench: HandlerBench) -> None:
    bench.topic("b")
    bench.topic("a")
    answer = described_topics(bench, "b", "no spaces", "a", "b", "missing")
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("a", ErrorCode.NONE),
        ("b", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no spaces", ErrorCode.INVALID_TOPIC_EXCEPTION),
    ]
    assert {t.topic_authorized_operations for t in answer.topics} == {3576}, "as Kafka has it"
    assert page_of(described_topics(bench)) == ([("a", [0]), ("b", [0])], None)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("names", [(), ("c", "a", "b")])
def test_pages_of_any_size_together_are_all_partitions_once(
    bench: HandlerBench, names: tuple[str, ...], limit: int
) -> None:
    for name, partitions in (("a", 3), ("b", 1), ("c", 4)):
        bench.topic(name, partitions=partitions)
    told: list[tuple[str, int]] = []
    cursor: tuple[str, int] | None = None
    while True:
        topics, cursor = page_of(described_topics(bench, *names, cursor=cursor, limit=limit))
        page = [(name, index) for name, indexes in topics for index in indexes]
        assert 0 < len(page) <= limit
        assert all(indexes for _, indexes in topics), "no topic before its page"
        told += page
        if cursor is None:
            break
    assert told == [("a", 0), ("a", 1), ("a", 2), ("b", 0), *(("c", n) for n in range(4))]


def test_the_broker_has_a_limit_of_its_own_and_answers_one_partition_at_least(
    tmp_path: Path,
) -> None:
    bench = HandlerBench(tmp_path, max_request_partition_size_limit="2")
    bench.topic("t", partitions=3)
    assert page_of(described_topics(bench, "t")) == ([("t", [0, 1])], ("t", 2))
    assert page_of(described_topics(bench, "t", limit=-5)) == ([("t", [0])], ("t", 1))


def test_a_cursor_behind_a_topic_s_end_skips_it(bench: HandlerBench) -> None:
    bench.topic("a")
    bench.topic("b")
    assert page_of(described_topics(bench, cursor=("a", 5))) == ([("a", []), ("b", [0])], None)


def test_all_topics_go_on_where_the_cursor_s_topic_was_deleted(bench: HandlerBench) -> None:
    bench.topic("a")
    bench.topic("c")
    assert page_of(described_topics(bench, cursor=("b", 1))) == ([("c", [0])], None)


@pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
def test_a_cursor_that_cannot_be_is_an_invalid_request(
    bench: HandlerBench, cursor: tuple[str, int]
) -> None:
    bench.topic("a")
    answer = described_topics(bench, "a", cursor=cursor)
    assert [(t.name, t.error_code) for t in answer.topics] == [("a", ErrorCode.INVALID_REQUEST)]
    assert answer.next_cursor is None


def reassignments(
    bench: HandlerBench, asked: dict[str, list[int]] | None
) -> list[tuple[str, int, list[int], list[int], list[int]]]:
    schema = k46_list_partition_reassignments
    topics = None
    if asked is not None:
        topics = [
            schema.ListPartitionReassignmentsTopics(name=name, partition_indexes=some)
            for name, some in asked.items()
        ]
    request = schema.ListPartitionReassignmentsRequest(timeout_ms=1, topics=topics)
    answer = bench.ask(schema.API, 0, request)
    assert (answer.error_code, answer.error_message) == (0, None)
    return [
        (t.name, p.partition_index, p.replicas, p.adding_replicas, p.removing_replicas)
        for t in answer.topics
        for p in t.partitions
    ]


def test_nothing_is_under_way_where_nobody_asked_for_it(bench: HandlerBench) -> None:
    bench.topic("t")
    assert reassignments(bench, None) == []
    assert reassignments(bench, {"missing": [0], "t": [0, 7, -1]}) == []


def test_a_reassignment_under_way_is_listed_with_who_comes_and_goes(bench: HandlerBench) -> None:
    topic = bench.topic("t", partitions=2)
    four, five, six = BrokerId(4), BrokerId(5), BrokerId(6)
    view = PartitionView(
        replicas=(four, five, ME, six),
        isr=(ME,),
        leader=ME,
        partition_epoch=Epoch(1),
        adding=(four, five, six),
        removing=(ME, six),  # 6 was to be added until somebody wanted 5 instead
    )
    bench.replay(PartitionChanged(topic, Partition(1), view))
    row = ("t", 1, [4, 5, ME, 6], [4, 5], [ME, 6])
    assert reassignments(bench, None) == [row]
    assert reassignments(bench, {"t": [1, 0]}) == [row]
    assert reassignments(bench, {"t": [0]}) == []


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_refused_because_there_is_no_authorizer(bench: HandlerBench, version: int) -> None:
    disabled = ErrorCode.SECURITY_DISABLED
    asked = k29_describe_acls.DescribeAclsRequest(
        resource_type_filter=2,
        resource_name_filter=None,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    answer = bench.ask(k29_describe_acls.API, version, asked)
    assert (answer.error_code, answer.resources) == (disabled, [])
    assert answer.error_message == "No Authorizer is configured on the broker"

    creation = k30_create_acls.AclCreation(resource_type=2, resource_name="t")
    request = k30_create_acls.CreateAclsRequest(creations=[creation] * 3)
    answer = bench.ask(k30_create_acls.API, version, request)
    assert [(row.error_code, row.error_message) for row in answer.results] == [
        (disabled, "No Authorizer is configured.")
    ] * 3

    unwanted = k31_delete_acls.DeleteAclsFilter(
        resource_type_filter=2, resource_name_filter="t", principal_filter=None, host_filter=None
    )
    deletion = k31_delete_acls.DeleteAclsRequest(filters=[unwanted] * 2)
    answer = bench.ask(k31_delete_acls.API, version, deletion)
    assert [(row.error_code, row.matching_acls) for row in answer.filter_results] == [
        (disabled, [])
    ] * 2


def test_every_route_serves_only_versions_its_messages_have(bench: HandlerBench) -> None:
    def served(route: Route) -> bool:
        known = route.api.versions
        return known[0] <= route.versions[0] and route.versions[-1] <= known[-1]

    routes = bench.dispatcher._routes.values()
    assert [route.api.name for route in routes if not served(route)] == []
