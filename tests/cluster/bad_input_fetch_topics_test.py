"""Bad fetches and bad topics: each has its answer."""

from collections.abc import Iterator
from typing import Any

import pytest

from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster
from tidelog.kernel.ids import Uuid
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k01_fetch, k03_metadata, k19_create_topics, k20_delete_topics
from tidelog.wire.records import iterate_batches, iterate_records

pytestmark = pytest.mark.slow


@pytest.fixture
def raw(cluster: Cluster) -> Iterator[RawClient]:
    with RawClient(cluster.bootstrap) as client:
        yield client


@pytest.fixture
def topic(cluster: Cluster) -> str:
    return cluster.create_topic()


def fetch(
    raw: RawClient,
    topic: str,
    offset: int = 0,
    *,
    leader_epoch: int = -1,
    partition_bytes_max: int = 1_000_000,
    **fields: Any,
) -> Any:
    """One partition's fetch in version 11; `fields` are the request's own."""
    partition = k01_fetch.FetchPartition(
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=leader_epoch,
        partition_max_bytes=partition_bytes_max,
    )
    asked = k01_fetch.FetchTopic(topic=topic, partitions=[partition])
    given: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "topics": [asked]}
    request = k01_fetch.FetchRequest(**given | fields)
    return raw.ask(k01_fetch.API, 11, request)


def code_of(answer: Any) -> ErrorCode:
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def values_of(answer: Any) -> list[bytes | None]:
    data = answer.responses[0].partitions[0].records
    return [record.value for _, batch in iterate_batches(data) for record in iterate_records(batch)]


@pytest.mark.parametrize("offset", [-1, 2, 10**12])
def test_an_offset_outside_the_log_is_out_of_range(raw: RawClient, topic: str, offset: int) -> None:
    produce(raw, topic, batch_of(b"x"))
    assert code_of(fetch(raw, topic, offset)) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_at_the_end_is_empty(raw: RawClient, topic: str) -> None:
    produce(raw, topic, batch_of(b"x"))
    answer = fetch(raw, topic, 1)
    assert (code_of(answer), values_of(answer)) == (ErrorCode.NONE, [])


def test_who_says_it_is_a_replica_is_refused(raw: RawClient, topic: str) -> None:
    answer = fetch(raw, topic, replica_id=0)
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_a_leader_epoch_that_is_not_ours_is_refused(raw: RawClient, topic: str) -> None:
    assert code_of(fetch(raw, topic, leader_epoch=99)) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert code_of(fetch(raw, topic, leader_epoch=0)) is ErrorCode.NONE


def test_an_unknown_session_and_a_wrong_session_epoch_are_told_apart(
    raw: RawClient, topic: str
) -> None:
    answer = fetch(raw, topic, session_id=12345, session_epoch=3)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session = fetch(raw, topic, session_epoch=0).session_id
    assert session > 0
    answer = fetch(raw, topic, session_id=session, session_epoch=7)
    assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert answer.responses == []


def test_a_flood_of_sessions_evicts_and_never_fails(raw: RawClient, topic: str) -> None:
    for _ in range(1_500):
        assert fetch(raw, topic, session_epoch=0).error_code == ErrorCode.NONE


def test_one_whole_batch_comes_back_however_small_the_limits(raw: RawClient, topic: str) -> None:
    produce(raw, topic, batch_of(b"x" * 50_000))
    answer = fetch(raw, topic, partition_bytes_max=1, max_bytes=1)
    assert values_of(answer) == [b"x" * 50_000]


def test_an_unknown_topic_is_said_so(raw: RawClient) -> None:
    answer = fetch(raw, "no-such-topic")
    assert code_of(answer) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_topic_id_is_said_so(raw: RawClient) -> None:
    partition = k01_fetch.FetchPartition(partition=0, partition_max_bytes=100)
    request = k01_fetch.FetchRequest(
        topics=[k01_fetch.FetchTopic(topic_id=Uuid(b"\x07" * 16), partitions=[partition])]
    )
    answer = raw.ask(k01_fetch.API, 13, request)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def create(raw: RawClient, name: str, **fields: Any) -> Any:
    row = k19_create_topics.CreatableTopic(
        name=name, **{"num_partitions": 1, "replication_factor": 1} | fields
    )
    request = k19_create_topics.CreateTopicsRequest(topics=[row], timeout_ms=5_000)
    return raw.ask(k19_create_topics.API, 7, request).topics[0]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "x" * 250, "a/b", "../../etc/x", "a\0b", "a b", "ä", "a\nb"]
)
def test_a_name_that_would_be_no_directory_s_is_refused(raw: RawClient, name: str) -> None:
    assert create(raw, name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_longest_name_is_taken(raw: RawClient) -> None:
    name = "n" * 249
    assert create(raw, name).error_code == ErrorCode.NONE
    assert produce(raw, name, batch_of(b"x")).error_code == ErrorCode.NONE
    request = k20_delete_topics.DeleteTopicsRequest(
        topics=[k20_delete_topics.DeleteTopicState(name=name)], timeout_ms=5_000
    )
    answer = raw.ask(k20_delete_topics.API, 6, request)
    assert answer.responses[0].error_code == ErrorCode.NONE


def test_names_that_differ_in_dot_and_underscore_collide(cluster: Cluster, raw: RawClient) -> None:
    name = cluster.create_topic().replace("-", "_")
    assert create(raw, f"{name}.x").error_code == ErrorCode.NONE
    assert create(raw, f"{name}_x").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("partitions", [0, -2, 1_000_000_000])
def test_a_number_of_partitions_that_cannot_be_is_refused(raw: RawClient, partitions: int) -> None:
    row = create(raw, "too-many-or-few", num_partitions=partitions)
    assert row.error_code == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("replicas", [0, -3, 2, 30_000])
def test_more_replicas_than_can_be_are_refused(raw: RawClient, replicas: int) -> None:
    row = create(raw, "replicated", replication_factor=replicas)
    assert row.error_code == ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such.key", "1"),
        ("retention.ms", "99999999999999999999999"),
        ("retention.ms", "soon"),
        ("cleanup.policy", "shred"),
        ("segment.bytes", "-1"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(raw: RawClient, name: str, value: str) -> None:
    config = k19_create_topics.CreatableTopicConfig(name=name, value=value)
    row = create(raw, "configured", configs=[config])
    assert row.error_code == ErrorCode.INVALID_CONFIG
    assert name in (row.error_message or "")


def test_the_same_topic_twice_in_one_request_is_refused(raw: RawClient) -> None:
    row = k19_create_topics.CreatableTopic(name="twin", num_partitions=1, replication_factor=1)
    request = k19_create_topics.CreateTopicsRequest(topics=[row, row], timeout_ms=5_000)
    answer = raw.ask(k19_create_topics.API, 7, request)
    assert {result.error_code for result in answer.topics} == {ErrorCode.INVALID_REQUEST}


def test_a_topic_that_exists_is_not_made_again(raw: RawClient, topic: str) -> None:
    assert create(raw, topic).error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_topic_that_is_not_there_cannot_be_deleted(raw: RawClient) -> None:
    states = [
        k20_delete_topics.DeleteTopicState(name="never-was"),
        k20_delete_topics.DeleteTopicState(topic_id=Uuid(b"\x09" * 16)),
    ]
    request = k20_delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=5_000)
    answer = raw.ask(k20_delete_topics.API, 6, request)
    assert [row.error_code for row in answer.responses] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ]


def test_metadata_of_bad_names_creates_nothing(raw: RawClient) -> None:
    request = k03_metadata.MetadataRequest(
        topics=[k03_metadata.MetadataRequestTopic(name="../x")], allow_auto_topic_creation=True
    )
    answer = raw.ask(k03_metadata.API, 12, request)
    assert answer.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_metadata_makes_a_missing_topic_only_where_the_client_allows_it(raw: RawClient) -> None:
    asked = [k03_metadata.MetadataRequestTopic(name="made-by-asking")]
    refused = k03_metadata.MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    answer = raw.ask(k03_metadata.API, 12, refused)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = raw.ask(k03_metadata.API, 12, k03_metadata.MetadataRequest(topics=asked))
    assert answer.topics[0].error_code == ErrorCode.NONE
    assert len(answer.topics[0].partitions) == 1
