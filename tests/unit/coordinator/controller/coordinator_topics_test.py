"""CreateTopics: which names, numbers, assignments and settings are taken, and what is answered."""

import pytest

from harness.machines.controllers import ONE, THREE, TWO, Controlled, topic
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import ZERO_UUID, BrokerId, uuid_text
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k19_create_topics import CreatableTopic
from tidelog.wire.metadata_records import (
    ConfigChanged,
    PartitionCreated,
    PartitionView,
    ResourceKind,
    TopicCreated,
)


def code_of(controlled: Controlled, asked: CreatableTopic) -> ErrorCode:
    before = len(controlled.log)
    (result,) = controlled.create(asked)
    code = ErrorCode(result.error_code)
    assert (len(controlled.log) > before) == (code is ErrorCode.NONE)
    assert (result.error_message is None) == (code is ErrorCode.NONE)
    return code


def test_a_topic_is_one_record_for_itself_each_setting_and_each_partition() -> None:
    controlled = Controlled(ONE)
    (result,) = controlled.create(topic(partitions=2, configs={"segment.bytes": "4096"}))
    view = PartitionView(replicas=(ONE,), isr=(ONE,), leader=ONE)
    assert controlled.log[-4:] == [
        TopicCreated(result.topic_id, "t"),
        ConfigChanged(ResourceKind.TOPIC, "t", "segment.bytes", "4096"),
        PartitionCreated(result.topic_id, 0, view),
        PartitionCreated(result.topic_id, 1, view),
    ]
    assert (result.num_partitions, result.replication_factor) == (2, 1)


def test_defaults_stand_in_for_what_is_left_open() -> None:
    controlled = Controlled(ONE, settings=ControllerSettings(partitions_default=3))
    (result,) = controlled.create(topic(partitions=-1, replicas=-1))
    assert (result.num_partitions, result.replication_factor) == (3, 1)


def test_the_answer_lists_every_setting_with_its_source() -> None:
    settings = ControllerSettings(broker={"log.retention.ms": "1000"})
    controlled = Controlled(ONE, settings=settings)
    (result,) = controlled.create(topic(configs={"cleanup.policy": "compact"}))
    assert result.configs is not None
    listed = {one.name: (one.value, one.config_source) for one in result.configs}
    assert listed["cleanup.policy"] == ("compact", 1)
    assert listed["retention.ms"] == ("1000", 4)
    assert listed["segment.bytes"] == (str(2**30), 5)


@pytest.mark.parametrize("name", ["a", "a.b-c_D9", "x" * 249, "...", "__consumer_offsets"])
def test_a_name_that_fits_is_taken(name: str) -> None:
    assert code_of(Controlled(ONE), topic(name)) is ErrorCode.NONE


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a\0", "a b", "ü", "a\n"])
def test_a_name_that_could_not_be_a_folder_is_refused(name: str) -> None:
    assert code_of(Controlled(ONE), topic(name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_the_metadata_log_is_no_topic_of_clients() -> None:
    assert code_of(Controlled(ONE), topic("__cluster_metadata")) is ErrorCode.INVALID_REQUEST


def test_a_topic_exists_once() -> None:
    controlled = Controlled(ONE)
    controlled.create(topic())
    assert code_of(controlled, topic()) is ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_names_that_metrics_could_not_tell_apart_collide(first: str, second: str) -> None:
    controlled = Controlled(ONE)
    controlled.create(topic(first))
    assert code_of(controlled, topic(second)) is ErrorCode.INVALID_TOPIC_EXCEPTION
    first_result, second_result = Controlled(ONE).create(topic(first), topic(second))
    assert first_result.error_code == 0
    assert second_result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("partitions", [0, -2, 10_001, 10**9])
def test_a_number_of_partitions_that_cannot_be_is_refused(partitions: int) -> None:
    asked = topic(partitions=partitions)
    assert code_of(Controlled(ONE), asked) is ErrorCode.INVALID_PARTITIONS


def test_the_partitions_of_one_request_are_limited_together() -> None:
    first, second = Controlled(ONE).create(topic("a", 6_000), topic("b", 6_000))
    assert first.error_code == 0
    assert second.error_code == ErrorCode.INVALID_PARTITIONS


def test_the_partitions_of_the_cluster_are_limited_together() -> None:
    controlled = Controlled(ONE)
    for number in range(9):
        controlled.create(topic(f"t{number}", 10_000))
    results = controlled.create(topic("almost", 9_990), topic("one", 10))
    assert [one.error_code for one in results] == [0, 0]
    assert code_of(controlled, topic("more")) is ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [0, -2, 2, 32_767])
def test_more_replicas_than_there_can_be_are_refused(factor: int) -> None:
    asked = topic(replicas=factor)
    assert code_of(Controlled(ONE), asked) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_fenced_broker_gets_replicas_where_the_others_are_too_few_and_leads_nothing() -> None:
    controlled = Controlled(ONE, TWO, THREE)
    controlled.lose(TWO)
    controlled.create(topic(partitions=4, replicas=3), topic("u", partitions=4, replicas=2))
    for view in controlled.image.names["t"].partitions:
        assert set(view.replicas) == {ONE, TWO, THREE}
        assert set(view.isr) == {ONE, THREE}
        assert view.replicas[2] == TWO
    assert all(TWO not in view.replicas for view in controlled.image.names["u"].partitions)


@pytest.mark.parametrize(("brokers", "expected"), [(1, 1), (2, 2), (3, 3), (5, 3)])
def test_a_topic_has_three_replicas_by_default_or_as_many_as_there_are_brokers(
    brokers: int, expected: int
) -> None:
    controlled = Controlled(*(BrokerId(one) for one in range(brokers)))
    (result,) = controlled.create(topic(replicas=-1))
    assert result.replication_factor == expected


def test_a_default_that_someone_set_is_kept_or_refused_as_it_is() -> None:
    settings = ControllerSettings(broker={"default.replication.factor": "2"})
    (result,) = Controlled(ONE, TWO, THREE, settings=settings).create(topic(replicas=-1))
    assert result.replication_factor == 2
    code = code_of(Controlled(ONE, settings=settings), topic(replicas=-1))
    assert code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_replicas_spread_over_the_brokers() -> None:
    controlled = Controlled(ONE, TWO, THREE)
    controlled.create(topic(partitions=3, replicas=3))
    views = controlled.image.names["t"].partitions
    assert {view.leader for view in views} == {ONE, TWO, THREE}
    assert all(set(view.isr) == {ONE, TWO, THREE} for view in views)


def test_without_a_live_broker_no_topic_can_be_placed() -> None:
    assert code_of(Controlled(), topic()) is ErrorCode.INVALID_REPLICATION_FACTOR


def test_an_assignment_is_taken_as_it_is() -> None:
    controlled = Controlled(ONE, TWO)
    (result,) = controlled.create(topic(assignments={1: [1], 0: [2]}))
    assert (result.num_partitions, result.replication_factor) == (2, 1)
    assert [view.leader for view in controlled.image.names["t"].partitions] == [TWO, ONE]


@pytest.mark.parametrize(
    "assignments",
    [
        {0: []},
        {0: [9]},
        {0: [1, 1]},
        {1: [1]},
        {0: [1], 2: [1]},
        {-1: [1]},
        {0: [1, 2], 1: [1]},
        {0: [3]},
    ],
    ids=["empty", "unknown", "twice", "not 0", "hole", "negative", "uneven", "fenced"],
)
def test_an_assignment_that_makes_no_sense_is_refused(assignments: dict[int, list[int]]) -> None:
    controlled = Controlled(ONE, TWO, THREE)
    controlled.lose(THREE)
    asked = topic(assignments=assignments)
    assert code_of(controlled, asked) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_partition_assigned_twice_is_refused() -> None:
    asked = topic(assignments={0: [1]})
    asked.assignments *= 2
    assert code_of(Controlled(ONE), asked) is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_replicas_lie_where_they_are_put_and_the_first_live_one_leads() -> None:
    controlled = Controlled(ONE, TWO, THREE)
    controlled.lose(TWO)
    controlled.create(topic(assignments={0: [TWO, THREE, ONE], 1: [ONE, TWO, THREE]}))
    assert controlled.image.names["t"].partitions == [
        PartitionView(replicas=(TWO, THREE, ONE), isr=(THREE, ONE), leader=THREE),
        PartitionView(replicas=(ONE, TWO, THREE), isr=(ONE, THREE), leader=ONE),
    ]


@pytest.mark.parametrize(("partitions", "factor"), [(1, -1), (-1, 1)])
def test_an_assignment_beside_numbers_is_refused(partitions: int, factor: int) -> None:
    asked = topic(assignments={0: [1]})
    asked.num_partitions, asked.replication_factor = partitions, factor
    assert code_of(Controlled(ONE), asked) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "configs",
    [{"segment.byte": "4096"}, {"segment.bytes": "12"}, {"segment.bytes": "9" * 40}, {"a": None}],
    ids=["unknown", "too small", "overflow", "null"],
)
def test_a_setting_that_breaks_its_rule_is_refused(configs: dict[str, str | None]) -> None:
    assert code_of(Controlled(ONE), topic(configs=configs)) is ErrorCode.INVALID_CONFIG


def test_a_refused_setting_is_told_with_its_rule() -> None:
    (result,) = Controlled(ONE).create(topic(configs={"segment.bytes": "12"}))
    assert "segment.bytes='12': must be between 4 KiB and 2 GiB - 1" in str(result.error_message)


def test_an_unknown_setting_is_told_its_nearest_neighbour_unless_too_much_is_asked() -> None:
    wrong: dict[str, str | None] = {"segment.byte": "4096"}
    (result,) = Controlled(ONE).create(topic(configs=wrong))
    assert "did you mean 'segment.bytes'?" in str(result.error_message)
    results = Controlled(ONE).create(*(topic(f"t{n}", configs=wrong) for n in range(100)))
    assert {one.error_message for one in results} == {"Unknown topic config name: segment.byte"}
    (long,) = Controlled(ONE).create(topic(configs={"x" * 30_000: "1"}))
    assert str(long.error_message).startswith("Unknown topic config name")


def test_more_topics_than_one_request_may_name_are_refused_whole() -> None:
    controlled = Controlled(ONE)
    with pytest.raises(Rejected) as refused:
        controlled.create(*(topic(f"t{number}") for number in range(10_001)))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert controlled.image.names == {}


def test_a_name_that_stands_twice_is_refused_and_answered_once() -> None:
    controlled = Controlled(ONE)
    results = controlled.create(topic("a"), topic("b"), topic("a"))
    assert [(one.name, one.error_code) for one in results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", ErrorCode.NONE),
    ]
    assert set(controlled.image.names) == {"b"}


def test_one_topic_s_failure_leaves_its_neighbours_alone() -> None:
    controlled = Controlled(ONE)
    results = controlled.create(topic("a"), topic("b", 0), topic("c"))
    assert [one.error_code for one in results] == [0, ErrorCode.INVALID_PARTITIONS, 0]
    assert set(controlled.image.names) == {"a", "c"}


def test_validation_alone_makes_nothing_and_names_no_id() -> None:
    controlled = Controlled(ONE)
    (result,) = controlled.create(topic(partitions=4), validate_only=True)
    assert (result.error_code, result.num_partitions, result.topic_id) == (0, 4, ZERO_UUID)
    assert controlled.image.names == {}


def test_ids_are_new_each_time_and_never_look_like_an_option() -> None:
    controlled = Controlled(ONE)
    seen = set()
    for _ in range(300):
        (result,) = controlled.create(topic())
        assert not uuid_text(result.topic_id).startswith("-")
        seen.add(result.topic_id)
        controlled.delete("t")
    assert len(seen) == 300


def test_the_same_seed_and_history_decide_the_same() -> None:
    logs = []
    for _ in range(2):
        controlled = Controlled(ONE, TWO, seed=7)
        controlled.create(topic("a", 5), topic("b", 2))
        logs.append(controlled.log)
    assert logs[0] == logs[1]
