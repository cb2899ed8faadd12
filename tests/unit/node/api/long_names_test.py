"""Names as long as the protocol allows: each request is answered, and the answer can be encoded."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import FakeClient
from harness.machines.controllers import topic
from harness.machines.conversations import CLIENT, Conversation
from harness.machines.group_bench import Asked, GroupBench
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import STRING_BYTES_MAX
from tidelog.kernel.texts import quoted
from tidelog.node.metadata.link import ForwardAsked
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import k11_join_group as joining
from tidelog.wire.messages import k19_create_topics as creation
from tidelog.wire.messages import k43_elect_leaders as electing
from tidelog.wire.messages import k44_incremental_alter_configs as altering
from tidelog.wire.messages import k45_alter_partition_reassignments as reassigning
from tidelog.wire.messages import k57_update_features as features
from tidelog.wire.messages import k68_consumer_group_heartbeat as heartbeat
from tidelog.wire.messages import k69_consumer_group_describe as describing
from tidelog.wire.schema import rows_of

LONG = "n" * STRING_BYTES_MAX
E = ErrorCode


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    return GroupBench(tmp_path)


def join(
    bench: GroupBench,
    version: int,
    client_id: str,
    instance_id: str | None = None,
    member: str = "",
) -> Asked:
    request = joining.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocols=[joining.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    asked = Asked(joining.API, version)
    frame = joined(encode_request(joining.API, version, 1, client_id, request))[4:]
    bench.dispatcher.begin(asked.client, memoryview(bytearray(frame)), bench.now)
    bench.later(10_000)
    return asked


@pytest.mark.parametrize("version", range(4))
def test_a_member_with_the_longest_client_id_joins_before_ids_came_first(
    bench: GroupBench, version: int
) -> None:
    answer = join(bench, version, LONG).answer()
    assert answer.error_code == 0
    assert answer.member_id.startswith("nnn")
    assert len(answer.member_id) < 300


@pytest.mark.parametrize("version", range(4, 10))
def test_a_member_with_the_longest_client_id_is_given_an_id_first(
    bench: GroupBench, version: int
) -> None:
    refused = join(bench, version, LONG).answer()
    assert refused.error_code == E.MEMBER_ID_REQUIRED
    assert join(bench, version, LONG, member=refused.member_id).answer().error_code == 0


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_of_the_longest_name_joins(bench: GroupBench, version: int) -> None:
    assert join(bench, version, "c", instance_id=LONG).answer().error_code == 0


def test_a_group_of_the_longest_name_is_described_as_unknown(bench: GroupBench) -> None:
    request = describing.ConsumerGroupDescribeRequest(group_ids=[LONG])
    (row,) = bench.ask(describing.API, 0, request).groups
    assert (row.group_id, row.error_code) == (LONG, E.GROUP_ID_NOT_FOUND)
    assert 0 < len(row.error_message) < 1_000


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"server_assignor": LONG}, E.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "(" * STRING_BYTES_MAX}, E.INVALID_REGULAR_EXPRESSION),
        ({"member_id": LONG, "member_epoch": 7}, E.UNKNOWN_MEMBER_ID),
        ({"instance_id": LONG, "member_epoch": -2}, E.UNKNOWN_MEMBER_ID),
        ({"group_id": LONG, "member_epoch": 7}, E.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_heartbeat_with_the_longest_texts_is_refused_in_words(
    bench: GroupBench, fields: dict[str, Any], code: ErrorCode
) -> None:
    joins = heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert bench.ask(heartbeat.API, 1, joins).error_code == 0
    for name, value in fields.items():
        setattr(joins, name, value)
    answer = bench.ask(heartbeat.API, 1, joins)
    assert answer.error_code == code
    assert 0 < len(answer.error_message) < 1_000


def _altering(name: str, value: str | None, operation: int = 0) -> Any:
    entry = altering.AlterableConfig(name=name, config_operation=operation, value=value)
    row = altering.AlterConfigsResource(resource_type=2, resource_name="t", configs=[entry])
    return altering.IncrementalAlterConfigsRequest(resources=[row])


def _reassigning(name: str) -> Any:
    row = reassigning.ReassignablePartition(partition_index=0, replicas=[0])
    named = reassigning.ReassignableTopic(name=name, partitions=[row])
    return reassigning.AlterPartitionReassignmentsRequest(topics=[named])


def _electing(name: str) -> Any:
    named = electing.TopicPartitions(topic=name, partitions=[0])
    return electing.ElectLeadersRequest(topic_partitions=[named])


def _updating(name: str) -> Any:
    return features.UpdateFeaturesRequest(
        feature_updates=[features.FeatureUpdateKey(feature=name, max_version_level=1)]
    )


def _creating(**fields: Any) -> Any:
    return creation.CreateTopicsRequest(topics=[topic("new", **fields)])


@pytest.mark.parametrize(
    ("api", "version", "request_", "code"),
    [
        (creation.API, 7, _creating(configs={LONG: "1"}), E.INVALID_CONFIG),
        (creation.API, 7, _creating(configs={"retention.ms": LONG}), E.INVALID_CONFIG),
        (altering.API, 1, _altering(LONG, "1"), E.INVALID_CONFIG),
        (altering.API, 1, _altering("retention.ms", LONG), E.INVALID_CONFIG),
        (altering.API, 1, _altering(LONG, None), E.INVALID_REQUEST),
        (altering.API, 1, _altering(LONG, LONG, operation=2), E.INVALID_CONFIG),
        (reassigning.API, 1, _reassigning(LONG), E.UNKNOWN_TOPIC_OR_PARTITION),
        (electing.API, 2, _electing(LONG), E.UNKNOWN_TOPIC_OR_PARTITION),
        (features.API, 1, _updating(LONG), E.INVALID_UPDATE_VERSION),
    ],
)
def test_the_coordinator_answers_requests_with_the_longest_texts(
    api: AnyApi, version: int, request_: object, code: ErrorCode
) -> None:
    talk = Conversation()
    talk.start_coordinator()
    talk.start_broker(0)
    talk.settle()
    talk.create(0, topic("t"))
    talk.settle()
    frame = joined(encode_request(api, version, 1, None, request_))[4:]
    outcome = talk.ask(0, ForwardAsked(999, CLIENT, frame, Instant(talk.now + ms(1_000))))
    talk.settle()
    assert isinstance(outcome.result, bytes), outcome.result
    _, answer = decode_response(api, version, memoryview(outcome.result))
    (found,) = [one for one in _rows(answer) if one.error_code]
    assert found.error_code == code
    assert 0 < len(found.error_message) <= 2_000


def test_a_list_cannot_be_appended_to_until_no_answer_can_carry_it() -> None:
    talk = Conversation()
    talk.start_coordinator()
    talk.start_broker(0)
    talk.settle()
    talk.create(0, topic("t"))
    talk.settle()
    codes = []
    for start in (0, 3_000, 6_000):
        places = ",".join(f"{partition}:0" for partition in range(start, start + 3_000))
        request = _altering("leader.replication.throttled.replicas", places, operation=2)
        frame = joined(encode_request(altering.API, 1, 1, None, request))[4:]
        asked = ForwardAsked(1_000 + start, CLIENT, frame, Instant(talk.now + ms(1_000)))
        outcome = talk.ask(0, asked)
        talk.settle()
        assert isinstance(outcome.result, bytes), outcome.result
        _, answer = decode_response(altering.API, 1, memoryview(outcome.result))
        codes.append(answer.responses[0].error_code)
    assert codes == [0, E.INVALID_CONFIG, E.INVALID_CONFIG]


def _rows(answer: Any) -> list[Any]:
    """All parts of an answer that have an error code and a message."""
    values = [getattr(answer, row.name) for row in rows_of(type(answer))]
    rows = [answer] if hasattr(answer, "error_message") else []
    for one in (part for value in values if isinstance(value, list) for part in value):
        rows += _rows(one)
    return rows


def test_a_refusal_is_never_longer_than_an_answer_can_carry() -> None:
    refused = Rejected(E.INVALID_REQUEST, "x" * 100_000)
    assert len(refused.detail) == 2_000


@pytest.mark.parametrize("text", ["", "a", "a" * 200])
def test_a_text_of_usual_length_is_quoted_as_it_is(text: str) -> None:
    assert quoted(text) == text


def test_a_long_text_is_quoted_up_to_its_bound_and_says_that_more_follows() -> None:
    assert quoted("a" * 201) == "a" * 197 + "..."


def test_a_client_that_is_refused_keeps_its_connection(bench: GroupBench) -> None:
    client = FakeClient()
    bench.begin(
        client, describing.API, 0, describing.ConsumerGroupDescribeRequest(group_ids=[LONG] * 2)
    )
    assert len(client.frames()) == 1
    assert client.closed is None
    assert bench.faults == []
