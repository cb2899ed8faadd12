"""Wide requests that a controller decides on: in pieces, each of which it answers in milliseconds.

The controller is a real one, without its log and socket.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import ME, turns
from harness.machines.deciding import Deciding
from harness.machines.group_bench import Asked
from tidelog.coordinator.controller.forwarding import Forwarded
from tidelog.kernel import limits
from tidelog.kernel.instant import Instant, ms
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k19_create_topics as k19
from tidelog.wire.messages import k20_delete_topics as k20
from tidelog.wire.messages import k33_alter_configs as k33
from tidelog.wire.messages import k37_create_partitions as k37
from tidelog.wire.messages import k43_elect_leaders as k43
from tidelog.wire.messages import k44_incremental_alter_configs as k44
from tidelog.wire.messages import k45_alter_partition_reassignments as k45

MOST = 200
"""The weight of a piece, in these tests."""
WIDE = MOST // 2 + 1


@pytest.fixture
def both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deciding:
    monkeypatch.setattr(limits, "FORWARDED_WEIGHT_MAX", MOST)
    return Deciding(tmp_path / "log0")


def topics(count: int, **fields: Any) -> list[k19.CreatableTopic]:
    given = {"num_partitions": 1, "replication_factor": 1} | fields
    return [k19.CreatableTopic(name=f"t-{at:05}", **given) for at in range(count)]


def creation(some: list[k19.CreatableTopic], **fields: Any) -> k19.CreateTopicsRequest:
    return k19.CreateTopicsRequest(topics=some, **fields)


def test_many_topics_are_created_in_pieces(both: Deciding) -> None:
    told = both.ask(k19.API, 7, creation(topics(WIDE)))
    assert [(row.name, row.error_code) for row in told.topics] == [
        (topic.name, 0) for topic in topics(WIDE)
    ]
    assert both.names() == [topic.name for topic in topics(WIDE)]
    assert max(len(piece.topics) for piece in both.pieces) <= MOST // 10


def test_few_topics_are_created_in_one_piece(both: Deciding) -> None:
    both.ask(k19.API, 7, creation(topics(10)))
    assert len(both.pieces) == 1


@pytest.mark.parametrize(
    "some",
    [
        pytest.param(topics(20, num_partitions=40), id="by their number"),
        pytest.param(
            topics(
                20,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    k19.CreatableReplicaAssignment(partition_index=at, broker_ids=[ME])
                    for at in range(40)
                ],
            ),
            id="by their replicas",
        ),
    ],
)
def test_topics_of_many_partitions_are_created_in_pieces(
    both: Deciding, some: list[k19.CreatableTopic]
) -> None:
    told = both.ask(k19.API, 7, creation(some))
    assert {row.error_code for row in told.topics} == {0}
    assert max(len(piece.topics) for piece in both.pieces) <= 5


def test_topics_of_many_settings_are_created_in_pieces(both: Deciding) -> None:
    one = k19.CreatableTopicConfig(name="retention.ms", value="1000")
    told = both.ask(k19.API, 7, creation(topics(20, configs=[one] * 40)))
    assert {row.error_code for row in told.topics} == {0}
    assert max(len(piece.topics) for piece in both.pieces) <= 5


def test_a_topic_of_more_partitions_than_any_may_have_is_refused_for_that(both: Deciding) -> None:
    told = both.ask(k19.API, 7, creation(topics(1, num_partitions=1_000_000_000)))
    assert [row.error_code for row in told.topics] == [ErrorCode.INVALID_PARTITIONS]


def test_topics_of_more_partitions_than_a_request_may_make_are_refused(both: Deciding) -> None:
    told = both.ask(k19.API, 7, creation(topics(11, num_partitions=1_000)))
    assert {row.error_code for row in told.topics} == {ErrorCode.POLICY_VIOLATION}
    assert not both.pieces
    assert both.names() == []


def test_a_name_that_stands_in_a_wide_request_twice_is_refused(both: Deciding) -> None:
    some = topics(WIDE)
    told = both.ask(k19.API, 7, creation([*some, *topics(1), *topics(1)]))
    codes = {row.name: row.error_code for row in told.topics}
    assert len(told.topics) == WIDE
    assert codes.pop("t-00000") == ErrorCode.INVALID_REQUEST
    assert set(codes.values()) == {0}
    assert "t-00000" not in both.names()


@pytest.mark.parametrize("validate_only", [True, False])
def test_names_of_a_wide_request_that_differ_in_dots_alone_collide(
    both: Deciding, *, validate_only: bool
) -> None:
    def named(name: str) -> k19.CreatableTopic:
        return k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1)

    some = [named("a.b"), *topics(WIDE), named("a_b")]
    told = both.ask(k19.API, 7, creation(some, validate_only=validate_only))
    assert [row.name for row in told.topics] == [topic.name for topic in some]
    assert told.topics[0].error_code == 0
    assert told.topics[-1].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert len(both.names()) == (0 if validate_only else WIDE + 1)


def test_a_wide_request_that_meets_no_controller_may_be_repeated(both: Deciding) -> None:
    asked = both.start(k19.API, 7, creation(topics(WIDE)))
    both.fail_one(ErrorCode.NOT_CONTROLLER)
    assert len(both.bench.link.forwarded) == 1, "another piece was sent"
    codes = [row.error_code for row in asked.answer().topics]
    assert codes == [ErrorCode.NOT_CONTROLLER] * WIDE


def test_what_a_controller_did_not_decide_is_told_apart_from_what_it_did(both: Deciding) -> None:
    """A client repeats a request without a controller as a whole; here it must not."""
    asked = both.start(k19.API, 7, creation(topics(WIDE)))
    both.decide_one()
    both.fail_one(ErrorCode.NOT_CONTROLLER)
    told = asked.answer().topics
    made = {row.name for row in told if row.error_code == 0}
    assert {row.error_code for row in told} == {0, ErrorCode.REQUEST_TIMED_OUT}
    assert sorted(made) == both.names()


def test_a_wide_request_is_done_to_its_end_if_its_client_leaves(both: Deciding) -> None:
    asked = both.start(k19.API, 7, creation(topics(WIDE)))
    both.decide_one()
    asked.client.session.abandon()
    while both.decide_one():
        pass
    assert len(both.names()) == WIDE


def test_a_wide_request_with_a_short_time_out_goes_on_as_long_as_its_pieces_are_decided(
    both: Deciding,
) -> None:
    """Some clients give 0: they do not want to wait until all brokers know the topics."""
    asked = both.start(k19.API, 7, creation(topics(WIDE), timeout_ms=0))
    both.bench.now = Instant(both.bench.now + ms(900))
    while both.decide_one():
        assert both.bench.link.deadlines[-1] - both.bench.now <= ms(1_000)
        both.bench.now = Instant(both.bench.now + ms(900))
    waits = [after - before for before, after in pairwise(both.bench.link.deadlines)]
    assert len(waits) >= 5
    assert set(waits) == {ms(900)}
    assert {row.error_code for row in asked.answer().topics} == {0}


def test_a_wide_request_ends_after_the_longest_time_that_any_may_take(both: Deciding) -> None:
    began = both.bench.now
    both.start(k19.API, 7, creation(topics(WIDE), timeout_ms=60_000))
    both.bench.now = Instant(both.bench.now + ms(20_000))
    both.decide_one()
    last = Instant(began + ms(limits.FORWARD_TIMEOUT_MS))
    assert both.bench.link.deadlines == [last, last]


def test_memory_of_a_wide_request_counts_until_it_is_done_if_its_client_leaves(
    both: Deciding,
) -> None:
    received = both.bench.broker.received
    asked = both.start(k20.API, 6, deletion([f"no-{at}" for at in range(6_000)]))
    both.decide_one()
    kept = received.kept
    assert kept > 0
    asked.client.session.abandon()
    assert received.kept == kept
    while both.decide_one():
        pass
    assert received.kept == 0


def deletion(names: list[str]) -> k20.DeleteTopicsRequest:
    states = [k20.DeleteTopicState(name=name) for name in names]
    return k20.DeleteTopicsRequest(topics=states, timeout_ms=1_000)


@pytest.mark.parametrize("version", [5, 6])
def test_many_topics_are_deleted_in_pieces(both: Deciding, version: int) -> None:
    names = [topic.name for topic in topics(WIDE)]
    both.controller.create(*topics(WIDE))
    asked = deletion(names)
    if version == 5:
        asked = k20.DeleteTopicsRequest(topic_names=names, timeout_ms=1_000)
    told = both.ask(k20.API, version, asked)
    assert [(row.name, row.error_code) for row in told.responses] == [(name, 0) for name in names]
    assert both.names() == []
    assert len(both.pieces) >= 2


def test_topics_of_many_partitions_are_deleted_in_pieces(both: Deciding) -> None:
    for at in range(4):
        both.bench.topic(f"t-{at:05}", WIDE)
    both.controller.create(*topics(4))
    told = both.ask(k20.API, 6, deletion([topic.name for topic in topics(4)]))
    assert {row.error_code for row in told.responses} == {0}
    assert len(both.pieces) == 4


def test_a_topic_that_a_wide_request_names_twice_is_decided_on_in_one_piece(
    both: Deciding,
) -> None:
    one = both.bench.topic("t")
    states = [
        k20.DeleteTopicState(name="t"),
        *(k20.DeleteTopicState(name=f"no-{at}") for at in range(2 * WIDE)),
        k20.DeleteTopicState(name=None, topic_id=one),
    ]
    asked = k20.DeleteTopicsRequest(topics=states, timeout_ms=1_000)
    told = both.ask(k20.API, 6, asked)
    assert len(told.responses) == len(states)
    first = both.pieces[0].topics
    assert [state.name for state in first[:2]] == ["t", None]
    assert first[1].topic_id == one


def test_a_wide_deletion_that_names_a_topic_in_no_way_is_refused(both: Deciding) -> None:
    request = deletion([f"no-{at}" for at in range(WIDE)])
    request.topics.append(k20.DeleteTopicState())
    told = both.ask(k20.API, 6, request)
    assert {row.error_code for row in told.responses} == {ErrorCode.INVALID_REQUEST}
    assert told.responses[0].error_message == "Neither topic name nor id were specified."
    assert not both.pieces


def refuse(both: Deciding, asked: Asked) -> Any:
    """Have the controller answer each piece that it could not write its log."""
    while len(both.pieces) < len(both.bench.link.forwarded):
        forwarded = Forwarded.read(both.bench.link.forwarded[-1][1])
        both.pieces.append(forwarded.message)
        both.say(forwarded.answer(Refusal(ErrorCode.REQUEST_TIMED_OUT)))
    assert both.bench.faults == []
    return asked.answer()


def test_a_refusal_of_a_piece_that_names_a_topic_twice_is_told(both: Deciding) -> None:
    names = [f"no-{at}" for at in range(WIDE)]
    told = refuse(both, both.start(k20.API, 6, deletion([*names, names[0]])))
    assert [row.name for row in told.responses] == names
    assert {row.error_code for row in told.responses} == {ErrorCode.REQUEST_TIMED_OUT}


def test_many_topics_get_more_partitions_in_pieces(both: Deciding) -> None:
    both.controller.create(*topics(WIDE))
    rows = [
        k37.CreatePartitionsTopic(name=topic.name, count=2, assignments=None)
        for topic in topics(WIDE)
    ]
    told = both.ask(k37.API, 3, k37.CreatePartitionsRequest(topics=[*rows, rows[0]]))
    assert [row.name for row in told.results] == [row.name for row in rows]
    assert told.results[0].error_code == ErrorCode.INVALID_REQUEST
    assert {row.error_code for row in told.results[1:]} == {0}
    assert both.controller.image.partitions_count == 2 * WIDE - 1
    assert len(both.pieces) >= 2


def configs(api: Any, count: int) -> Any:
    one: Any = k33.AlterableConfig(name="retention.ms", value="5000")
    row: Any = k33.AlterConfigsResource
    if api is k44.API:
        one = k44.AlterableConfig(name="retention.ms", config_operation=0, value="5000")
        row = k44.AlterConfigsResource
    rows = [row(resource_type=2, resource_name=f"t-{at:05}", configs=[one]) for at in range(count)]
    wrong = row(resource_type=99, resource_name="of no kind", configs=[one])
    return api.request(resources=[wrong, rows[0], *rows], validate_only=False)


@pytest.mark.parametrize("api", [k33.API, k44.API])
def test_settings_of_many_topics_are_changed_in_pieces(both: Deciding, api: Any) -> None:
    both.controller.create(*topics(WIDE))
    request = configs(api, WIDE)
    told = both.ask(api, 1, request)
    assert [row.resource_name for row in told.responses] == [
        one.resource_name for one in request.resources
    ]
    assert [row.error_code for row in told.responses] == [ErrorCode.INVALID_REQUEST] * 3 + [0] * (
        WIDE - 1
    )
    image = both.controller.image
    assert image.names["t-00001"].configs == {"retention.ms": "5000"}
    assert image.names["t-00000"].configs == {}
    assert max(len(piece.resources) for piece in both.pieces) <= MOST // 4


@pytest.mark.parametrize("api", [k33.API, k44.API])
def test_more_changes_than_one_request_may_make_are_refused(both: Deciding, api: Any) -> None:
    request = configs(api, limits.CONFIG_CHANGES_PER_DECISION_MAX)
    told = both.ask(api, 1, request)
    assert {row.error_code for row in told.responses} == {ErrorCode.INVALID_REQUEST}
    assert "10001 changes of 10001 resources" in told.responses[-1].error_message
    assert not both.pieces


def elected(both: Deciding, request: k43.ElectLeadersRequest, version: int = 2) -> Any:
    return both.ask(k43.API, version, request)


def test_leaders_of_many_partitions_are_elected_in_pieces(both: Deciding) -> None:
    both.controller.create(*topics(2, num_partitions=WIDE))
    named = [
        k43.TopicPartitions(topic=name, partitions=list(range(WIDE)))
        for name in ("t-00000", "t-00001")
    ]
    again = k43.TopicPartitions(topic="t-00000", partitions=[WIDE])
    told = elected(both, k43.ElectLeadersRequest(topic_partitions=[*named, again]))
    assert [result.topic for result in told.replica_election_results] == ["t-00000", "t-00001"]
    rows = [row for result in told.replica_election_results for row in result.partition_result]
    assert [row.partition_id for row in rows] == [*range(WIDE + 1), *range(WIDE)]
    assert rows[WIDE].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {row.error_code for row in rows[:WIDE]} == {ErrorCode.ELECTION_NOT_NEEDED}
    assert len(both.pieces) >= 3


def test_an_election_of_no_known_kind_is_refused_as_a_whole(both: Deciding) -> None:
    named = [k43.TopicPartitions(topic="t", partitions=list(range(WIDE)))]
    request = k43.ElectLeadersRequest(election_type=7, topic_partitions=named)
    assert elected(both, request).error_code == ErrorCode.INVALID_REQUEST
    assert len(both.pieces) == 1


@pytest.mark.parametrize("count", [1, WIDE])
def test_an_election_that_is_refused_tells_so_in_version_0(both: Deciding, count: int) -> None:
    """It has no code for the whole, so that each partition must have one."""
    named = [k43.TopicPartitions(topic="t", partitions=list(range(count)))]
    request = k43.ElectLeadersRequest(topic_partitions=named)
    (result,) = refuse(both, both.start(k43.API, 0, request)).replica_election_results
    codes = [(row.partition_id, row.error_code) for row in result.partition_result]
    assert codes == [(at, ErrorCode.REQUEST_TIMED_OUT) for at in range(count)]


def test_all_leaders_of_a_large_cluster_are_elected_in_pieces(both: Deciding) -> None:
    """Whoever names no partition hears of those alone that have another leader now."""
    both.bench.topic("t-00000", WIDE)
    both.controller.create(*topics(1, num_partitions=WIDE))
    told = elected(both, k43.ElectLeadersRequest(topic_partitions=None))
    assert (told.error_code, told.replica_election_results) == (0, [])
    assert len(both.pieces) >= 2


def moves(count: int, *names: str) -> k45.AlterPartitionReassignmentsRequest:
    rows = [k45.ReassignablePartition(partition_index=at, replicas=[ME]) for at in range(count)]
    return k45.AlterPartitionReassignmentsRequest(
        topics=[k45.ReassignableTopic(name=name, partitions=rows) for name in names]
    )


def test_many_partitions_are_moved_in_pieces(both: Deciding) -> None:
    both.controller.create(*topics(2, num_partitions=WIDE))
    told = both.ask(k45.API, 1, moves(WIDE, "t-00000", "no", "t-00001"))
    assert told.error_code == 0
    assert [(topic.name, len(topic.partitions)) for topic in told.responses] == [
        (name, WIDE) for name in ("t-00000", "no", "t-00001")
    ]
    unknown = {row.error_code for row in told.responses[1].partitions}
    assert unknown == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert {row.error_code for row in told.responses[2].partitions} == {0}
    assert len(both.pieces) >= 3


def test_more_partitions_than_one_request_may_move_are_refused(both: Deciding) -> None:
    told = both.ask(k45.API, 1, moves(5_001, "a", "b"))
    assert told.error_code == ErrorCode.POLICY_VIOLATION
    assert not both.pieces


def test_others_have_their_turn_before_a_wide_request_is_cut_into_pieces(tmp_path: Path) -> None:
    both = Deciding(tmp_path / "log0")
    names = [f"no-{at}" for at in range(limits.FORWARDED_WEIGHT_MAX)]
    asked = both.bench.start_asking(k20.API, 6, deletion(names))
    assert turns(both.bench) >= 2
    while both.decide_one():
        pass
    rows = asked.answer().responses
    assert [(row.name, row.error_code) for row in rows] == [
        (name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in names
    ]
