"""What an administrator may ask of one broker, as requests: of us and of Apache Kafka alike."""

from collections.abc import Iterator
from typing import Any

from harness.kafka.admin_questions_of_settings import Question, questions_of_settings
from tidelog.wire.messages import (
    k19_create_topics,
    k21_delete_records,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k35_describe_log_dirs,
    k37_create_partitions,
    k46_list_partition_reassignments,
    k60_describe_cluster,
    k61_describe_producers,
    k75_describe_topic_partitions,
)


def questions() -> Iterator[Question]:
    """In this order: some change what the next ones find."""
    yield _topics_made()
    yield from questions_of_settings()
    yield from _grown()
    yield from _deleted()
    yield from _pages()
    yield from _acls()
    yield from _rest()


def _topics_made() -> Question:
    rows = [
        k19_create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[
                k19_create_topics.CreatableTopicConfig(name=key, value=value)
                for key, value in configs.items()
            ],
        )
        for name, partitions, configs in (
            ("a", 3, {}),
            ("c", 1, {"cleanup.policy": "compact", "retention.ms": "3600000"}),
            ("bad@name", 1, {}),
            ("none", 0, {}),
            ("wrong", 1, {"retention.ms": "x"}),
            ("strange", 1, {"no.such.thing": "x"}),
        )
    ]
    return Question(
        "create topics",
        k19_create_topics.API,
        7,
        k19_create_topics.CreateTopicsRequest(topics=rows, timeout_ms=10_000),
        lambda answer: sorted(
            (row.name, row.error_code, row.num_partitions, len(row.configs or []))
            for row in answer.topics
        ),
    )


def _grown() -> Iterator[Question]:
    made = k37_create_partitions.CreatePartitionsAssignment
    for name, count, placed in (
        *(("a", count, None) for count in (3, 2, 0, -1)),
        *((name, 3, None) for name in ("missing", "")),
        ("a", 4, []),
        ("a", 4, [made(broker_ids=[0])]),
        ("a", 5, [made(broker_ids=[1])]),
        ("a", 5, [made(broker_ids=[0, 0])]),
        ("a", 6, [made(broker_ids=[0])]),
    ):
        row = k37_create_partitions.CreatePartitionsTopic(
            name=name, count=count, assignments=placed
        )
        yield Question(
            f"grow {name!r} to {count} at {placed}",
            k37_create_partitions.API,
            3,
            k37_create_partitions.CreatePartitionsRequest(topics=[row], timeout_ms=10_000),
            lambda answer: [(row.name, row.error_code) for row in answer.results],
        )


def _deleted() -> Iterator[Question]:
    for topic, partition, offset in (
        *(("a", 0, offset) for offset in (0, -1, 5, -2)),
        ("a", 99, 0),
        ("missing", 0, 0),
        ("c", 0, 0),
    ):
        row = k21_delete_records.DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = k21_delete_records.DeleteRecordsRequest(
            topics=[k21_delete_records.DeleteRecordsTopic(name=topic, partitions=[row])],
            timeout_ms=5_000,
        )
        yield Question(
            f"delete records of {topic}-{partition} below {offset}",
            k21_delete_records.API,
            2,
            request,
            lambda answer: [
                (row.partition_index, row.low_watermark, row.error_code)
                for topic in answer.topics
                for row in topic.partitions
            ],
        )


def _pages() -> Iterator[Question]:
    wanted = k75_describe_topic_partitions.TopicRequest
    for names, limit in (
        ([], 2_000),
        (["a", "missing", "c"], 2_000),
        (["a"], 2),
        (["a", "c"], 4),
        (["a", "a"], 2_000),
        (["bad@name"], 2_000),
    ):
        request = k75_describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[wanted(name=name) for name in names],
            response_partition_limit=limit,
            cursor=None,
        )
        yield Question(
            f"pages of {names} by {limit}", k75_describe_topic_partitions.API, 0, request, _page
        )


def _page(answer: Any) -> object:
    after = answer.next_cursor
    topics = [
        (
            topic.error_code,
            topic.name,
            topic.is_internal,
            topic.topic_authorized_operations,
            [
                (
                    row.error_code,
                    row.partition_index,
                    row.leader_id,
                    row.replica_nodes,
                    row.isr_nodes,
                )
                for row in topic.partitions
            ],
        )
        for topic in answer.topics
    ]
    return topics, after and (after.topic_name, after.partition_index)


def _acls() -> Iterator[Question]:
    acls = k29_describe_acls.DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    yield Question(
        "describe ACLs",
        k29_describe_acls.API,
        3,
        acls,
        lambda answer: (answer.error_code, answer.resources),
    )
    creation = k30_create_acls.AclCreation(
        resource_type=2,
        resource_name="x",
        resource_pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )
    yield Question(
        "create ACLs",
        k30_create_acls.API,
        3,
        k30_create_acls.CreateAclsRequest(creations=[creation]),
        lambda answer: [row.error_code for row in answer.results],
    )
    every = k31_delete_acls.DeleteAclsFilter(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    )
    yield Question(
        "delete ACLs",
        k31_delete_acls.API,
        3,
        k31_delete_acls.DeleteAclsRequest(filters=[every]),
        lambda answer: [(row.error_code, row.matching_acls) for row in answer.filter_results],
    )


def _rest() -> Iterator[Question]:
    yield Question(
        "reassignments",
        k46_list_partition_reassignments.API,
        0,
        k46_list_partition_reassignments.ListPartitionReassignmentsRequest(
            timeout_ms=1_000, topics=None
        ),
        lambda answer: (answer.error_code, answer.topics),
    )
    for version, kind in ((2, 1), (1, 2)):
        yield Question(
            f"the cluster, {kind}",
            k60_describe_cluster.API,
            version,
            k60_describe_cluster.DescribeClusterRequest(
                include_cluster_authorized_operations=True, endpoint_type=kind
            ),
            lambda answer: (
                answer.error_code,
                answer.controller_id,
                [(row.broker_id, row.rack, row.is_fenced) for row in answer.brokers],
                answer.cluster_authorized_operations,
            ),
        )
    yield _producers()
    yield from (_log_dirs(version) for version in range(1, 6))


def _producers() -> Question:
    asked = k61_describe_producers.TopicRequest
    request = k61_describe_producers.DescribeProducersRequest(
        topics=[asked(name="a", partition_indexes=[0, 99]), asked(name="x", partition_indexes=[0])]
    )
    return Question(
        "producers",
        k61_describe_producers.API,
        0,
        request,
        lambda answer: [
            (topic.name, row.partition_index, row.error_code, row.active_producers)
            for topic in answer.topics
            for row in topic.partitions
        ],
    )


def _log_dirs(version: int) -> Question:
    asked = k35_describe_log_dirs.DescribableLogDirTopic
    request = k35_describe_log_dirs.DescribeLogDirsRequest(
        topics=[asked(topic="a", partitions=[0, 1, 99]), asked(topic="missing", partitions=[0])]
    )
    return Question(
        f"log directories, version {version}",
        k35_describe_log_dirs.API,
        version,
        request,
        lambda answer: [
            (
                result.error_code,
                result.is_cordoned,
                result.total_bytes > 0,
                sorted(
                    (topic.name, row.partition_index, row.partition_size, row.offset_lag)
                    for topic in result.topics
                    for row in topic.partitions
                ),
            )
            for result in answer.results
        ],
    )
