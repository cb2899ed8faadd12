"""ElectLeaders, brokers on their way out, and settings that change who may lead."""

import pytest

from harness.machines.controllers import ONE, START, THREE, TWO, Controlled, registering, topic
from harness.machines.conversations import Conversation
from tidelog.coordinator.controller.requests import (
    AlterIsr,
    BrokerApplied,
    BrokerLeaving,
    BrokerLost,
    Done,
    ElectLeaders,
    IncrementalAlterConfigs,
    IsrOutcomes,
)
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import NO_LEADER, BrokerId, Incarnation
from tidelog.kernel.instant import Instant, ms, s
from tidelog.kernel.limits import LEADERS_MOVED_PER_DECISION_MAX, METADATA_APPLY_WAIT_MS
from tidelog.wire.control import IsrChange
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tidelog.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.metadata_records import (
    BrokerFenced,
    BrokerStopping,
    PartitionChanged,
    PartitionView,
)

PREFERRED, UNCLEAN = 0, 1
NAMED = [("t", [0, 1, 2])]


@pytest.fixture
def controlled() -> Controlled:
    """t-0, t-1 and t-2 on three brokers, each led by another one."""
    controlled = Controlled(ONE, TWO, THREE)
    controlled.create(topic("t", assignments={0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]}))
    return controlled


def views(controlled: Controlled) -> list[PartitionView]:
    return controlled.image.names["t"].partitions


def leaders(controlled: Controlled) -> list[int]:
    return [view.leader for view in views(controlled)]


def elect(
    controlled: Controlled, kind: int, named: list[tuple[str, list[int]]] | None
) -> list[tuple[str, int, int]]:
    asked = None
    if named is not None:
        asked = [TopicPartitions(topic=name, partitions=some) for name, some in named]
    message = ElectLeadersRequest(election_type=kind, topic_partitions=asked)
    reply = controlled.everywhere(ElectLeaders(2, message))
    assert isinstance(reply, ElectLeadersResponse)
    assert reply.error_code == 0
    return [
        (one.topic, row.partition_id, row.error_code)
        for one in reply.replica_election_results
        for row in one.partition_result
    ]


def grow_isr(controlled: Controlled, partition: int) -> None:
    """The leader takes all replicas back."""
    view, brokers = views(controlled)[partition], controlled.image.brokers
    change = IsrChange(
        topic=controlled.image.names["t"].id,
        partition=partition,
        leader_epoch=view.leader_epoch,
        partition_epoch=view.partition_epoch,
        isr=tuple((one, brokers[one].epoch) for one in view.replicas),
    )
    incarnation = brokers[view.leader].incarnation
    reply = controlled.ask(AlterIsr(view.leader, incarnation, (change,)))
    assert isinstance(reply, IsrOutcomes)
    assert reply.outcomes == (ErrorCode.NONE,)


# -- ElectLeaders


def test_the_preferred_leads_again_once_it_is_in_sync(controlled: Controlled) -> None:
    controlled.lose(ONE)
    controlled.join(ONE, 2)
    assert leaders(controlled) == [2, 2, 3]
    assert elect(controlled, PREFERRED, NAMED) == [("t", 0, 80), ("t", 1, 84), ("t", 2, 84)]
    grow_isr(controlled, 0)
    assert elect(controlled, PREFERRED, NAMED) == [("t", 0, 0), ("t", 1, 84), ("t", 2, 84)]
    assert leaders(controlled) == [1, 2, 3]
    assert views(controlled)[0].leader_epoch == 2


def test_where_none_is_named_all_that_need_one_are_elected(controlled: Controlled) -> None:
    controlled.lose(ONE)
    controlled.join(ONE, 2)
    grow_isr(controlled, 0)
    assert elect(controlled, PREFERRED, None) == [("t", 0, 0)]
    assert elect(controlled, PREFERRED, None) == []


def test_what_is_not_there_is_unknown_and_hinders_nobody(controlled: Controlled) -> None:
    controlled.lose(ONE)
    controlled.join(ONE, 2)
    grow_isr(controlled, 0)
    named = [("t", [0, 7, -1]), ("u", [0])]
    assert elect(controlled, PREFERRED, named) == [
        ("t", 0, 0),
        ("t", 7, 3),
        ("t", -1, 3),
        ("u", 0, 3),
    ]


def test_a_partition_named_twice_is_elected_once(controlled: Controlled) -> None:
    controlled.lose(ONE)
    controlled.join(ONE, 2)
    grow_isr(controlled, 0)
    assert elect(controlled, PREFERRED, [("t", [0, 0])]) == [("t", 0, 0), ("t", 0, 84)]


def test_another_kind_of_election_is_an_invalid_request(controlled: Controlled) -> None:
    message = ElectLeadersRequest(election_type=2, topic_partitions=None)
    with pytest.raises(Rejected) as refused:
        controlled.ask(ElectLeaders(2, message))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_no_unclean_leader_where_there_is_one_or_none_can_be(controlled: Controlled) -> None:
    assert elect(controlled, UNCLEAN, [("t", [0])]) == [("t", 0, 84)]
    for broker in (ONE, TWO, THREE):
        controlled.lose(broker)
    controlled.join(ONE, 2)
    assert elect(controlled, UNCLEAN, [("t", [0])]) == [("t", 0, 83)]


# -- by itself


def pass_time(controlled: Controlled, seconds: int) -> None:
    controlled.now = Instant(controlled.now + s(seconds))
    deadline = controlled.shard.deadline()
    if deadline is not None and deadline <= controlled.now:
        controlled.tick()


def test_leaders_go_back_to_the_preferred_in_time(controlled: Controlled) -> None:
    controlled.lose(ONE)
    controlled.join(ONE, 2)
    pass_time(controlled, 300)
    assert leaders(controlled) == [2, 2, 3], "it is not in sync"
    grow_isr(controlled, 0)
    pass_time(controlled, 299)
    assert leaders(controlled) == [2, 2, 3]
    pass_time(controlled, 1)
    assert leaders(controlled) == [1, 2, 3]


def test_many_leaders_go_back_a_part_at_a_time() -> None:
    controlled = Controlled(ONE, TWO)
    most = LEADERS_MOVED_PER_DECISION_MAX
    controlled.create(topic("t", assignments={n: [1, 2] for n in range(most + 5)}))
    controlled.lose(ONE)
    controlled.join(ONE, 2)
    for partition in range(most + 5):
        grow_isr(controlled, partition)
    pass_time(controlled, 300)
    assert leaders(controlled).count(ONE) == most
    pass_time(controlled, 0)
    assert leaders(controlled).count(ONE) == most + 5


def test_nobody_goes_back_by_itself_where_that_is_not_wanted() -> None:
    off = ControllerSettings.of({"auto.leader.rebalance.enable": "false"})
    controlled = Controlled(ONE, TWO, settings=off)
    assert controlled.shard.deadline() is None
    sooner = ControllerSettings.of({"leader.imbalance.check.interval.seconds": "5"})
    assert Controlled(ONE, settings=sooner).shard.deadline() == START + s(5)


# -- leaving


def leave(controlled: Controlled, broker: BrokerId) -> object:
    return controlled.ask(BrokerLeaving(broker, controlled.image.brokers[broker].incarnation))


def test_who_leaves_leads_nothing_and_is_fenced_when_the_others_know(
    controlled: Controlled,
) -> None:
    assert leave(controlled, ONE) is None
    asked = controlled.last_asked
    assert isinstance(controlled.last_records[0], BrokerStopping)
    assert leaders(controlled) == [2, 2, 3]
    assert all(ONE not in view.isr for view in views(controlled))
    assert controlled.image.alive() == [1, 2, 3]
    controlled.apply(ONE)
    controlled.apply(TWO)
    assert asked not in controlled.replies
    controlled.apply(THREE)
    assert isinstance(controlled.replies[asked], Done)
    assert [type(one) for one in controlled.last_records] == [BrokerFenced]
    assert controlled.image.alive() == [2, 3]


def test_who_does_not_hear_of_it_holds_nobody_up_for_long(controlled: Controlled) -> None:
    leave(controlled, ONE)
    asked = controlled.last_asked
    controlled.now = Instant(controlled.now + ms(METADATA_APPLY_WAIT_MS))
    assert controlled.shard.deadline() == controlled.now
    controlled.tick()
    assert isinstance(controlled.replies[asked], Done)


def test_who_leaves_joins_no_isr_and_gets_nothing_new(controlled: Controlled) -> None:
    leave(controlled, ONE)
    view, brokers = views(controlled)[1], controlled.image.brokers
    change = IsrChange(
        topic=controlled.image.names["t"].id,
        partition=1,
        leader_epoch=view.leader_epoch,
        partition_epoch=view.partition_epoch,
        isr=tuple((one, brokers[one].epoch) for one in (TWO, THREE, ONE)),
    )
    reply = controlled.ask(AlterIsr(TWO, brokers[TWO].incarnation, (change,)))
    assert isinstance(reply, IsrOutcomes)
    assert reply.outcomes == (ErrorCode.INELIGIBLE_REPLICA,)
    controlled.create(topic("u", 6, 2))
    assert all(ONE not in view.replicas for view in controlled.image.names["u"].partitions)


def test_much_is_given_away_a_part_at_a_time() -> None:
    controlled = Controlled(ONE, TWO)
    most = LEADERS_MOVED_PER_DECISION_MAX
    controlled.create(topic("t", assignments={n: [1, 2] for n in range(2 * most + 5)}))
    leave(controlled, ONE)
    asked, moved = controlled.last_asked, []
    for _ in range(3):
        moved.append(sum(isinstance(one, PartitionChanged) for one in controlled.last_records))
        controlled.tick()
    assert moved == [most, most, 5]
    assert set(leaders(controlled)) == {TWO}
    controlled.apply(TWO)
    assert isinstance(controlled.replies[asked], Done)


def test_who_dies_while_it_leaves_has_left() -> None:
    controlled = Controlled(ONE, TWO)
    many = {n: [1, 2] for n in range(LEADERS_MOVED_PER_DECISION_MAX + 1)}
    controlled.create(topic("t", assignments=many))
    leave(controlled, ONE)
    asked = controlled.last_asked
    controlled.ask(BrokerLost(ONE, Incarnation(1)))
    assert isinstance(controlled.replies[asked], Done)
    assert set(leaders(controlled)) == {TWO}
    controlled.join(ONE, 2)
    controlled.tick()
    assert controlled.image.is_active(ONE)


def test_the_next_life_is_not_fenced_for_the_last_one_s_leaving(controlled: Controlled) -> None:
    leave(controlled, ONE)
    controlled.ask(registering(ONE, 2))
    controlled.ask(BrokerApplied(ONE, Incarnation(2), controlled.image.offset))
    controlled.apply(TWO)
    controlled.apply(THREE)
    assert controlled.image.is_active(ONE)


def test_all_may_leave_at_once_and_the_last_is_waited_for(controlled: Controlled) -> None:
    for broker in (ONE, TWO, THREE):
        leave(controlled, broker)
    for broker in (ONE, TWO, THREE):
        controlled.apply(broker)
    assert controlled.image.alive() == []
    assert leaders(controlled) == [NO_LEADER] * 3
    assert {view.elr for view in views(controlled)} == {(THREE,)}


def test_leaving_over_the_pipes() -> None:
    talk = Conversation()
    talk.start_coordinator()
    for broker in range(3):
        talk.start_broker(broker)
    talk.settle()
    talk.create(0, topic("t", 9, 3))
    talk.settle()
    left = talk.leave(1)
    talk.settle()
    assert left.result is ErrorCode.NONE
    assert talk.shard.image.alive() == [0, 2]
    assert {one.leader for one in talk.shard.image.names["t"].partitions} == {0, 2}
    for broker in (0, 2):
        assert talk.sides[BrokerId(broker)].link.image == talk.shard.image


# -- settings


def configure(controlled: Controlled, resource: str, name: str, value: str | None) -> int:
    entry = AlterableConfig(name=name, config_operation=1 if value is None else 0, value=value)
    kind = 2 if resource == "t" else 4
    row = AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[entry])
    request = IncrementalAlterConfigsRequest(resources=[row], validate_only=False)
    reply = controlled.everywhere(IncrementalAlterConfigs(1, request))
    assert isinstance(reply, IncrementalAlterConfigsResponse)
    return reply.responses[0].error_code


@pytest.mark.parametrize("resource", ["t", ""])
def test_who_was_eligible_under_another_minimum_is_so_no_more(
    controlled: Controlled, resource: str
) -> None:
    configure(controlled, resource, "min.insync.replicas", "3")
    controlled.lose(TWO)
    assert {view.elr for view in views(controlled)} == {(TWO,)}
    assert configure(controlled, resource, "min.insync.replicas", "2") == 0
    assert {view.elr for view in views(controlled)} == {()}


def test_a_change_that_leaves_the_minimum_as_it_is_forgets_nobody(controlled: Controlled) -> None:
    configure(controlled, "t", "min.insync.replicas", "3")
    controlled.lose(TWO)
    configure(controlled, "t", "retention.ms", "1000")
    configure(controlled, "", "min.insync.replicas", "2")
    configure(controlled, "t", "min.insync.replicas", "3")
    assert {view.elr for view in views(controlled)} == {(TWO,)}


def test_while_nobody_is_in_sync_the_eligible_stay(controlled: Controlled) -> None:
    for broker in (ONE, TWO, THREE):
        controlled.lose(broker)
    configure(controlled, "t", "min.insync.replicas", "2")
    assert {view.elr for view in views(controlled)} == {(THREE,)}


def test_no_broker_has_a_minimum_of_its_own(controlled: Controlled) -> None:
    """Its leader would count on fewer replicas than the controller thinks."""
    refused = configure(controlled, "1", "min.insync.replicas", "1")
    assert refused == ErrorCode.INVALID_CONFIG
    assert configure(controlled, "1", "log.cleaner.backoff.ms", "1") == 0
