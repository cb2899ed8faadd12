"""Requests that are decided on at one go may have fewer elements than those done in parts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import FakeClient, turns
from harness.machines.group_bench import GroupBench
from tidelog.kernel import limits
from tidelog.wire.messages import k11_join_group as k11
from tidelog.wire.messages import k13_leave_group as k13
from tidelog.wire.messages import k14_sync_group as k14
from tidelog.wire.messages import k16_list_groups as k16
from tidelog.wire.messages import k19_create_topics as k19
from tidelog.wire.messages import k20_delete_topics as k20
from tidelog.wire.messages import k27_write_txn_markers as k27
from tidelog.wire.messages import k43_elect_leaders as k43
from tidelog.wire.messages import k66_list_transactions as k66
from tidelog.wire.messages import k68_consumer_group_heartbeat as k68

FEW, MANY = limits.FEW_ELEMENTS_MAX, limits.DECIDED_ELEMENTS_MAX

Make = Callable[[int], Any]


def join(count: int) -> Any:
    protocols = [k11.JoinGroupRequestProtocol(name=str(at), metadata=b"") for at in range(count)]
    return k11.JoinGroupRequest(group_id="g", protocols=protocols, session_timeout_ms=10_000)


def leave(count: int) -> Any:
    members = [k13.MemberIdentity(member_id=str(at), group_instance_id=None) for at in range(count)]
    return k13.LeaveGroupRequest(group_id="g", members=members)


def sync(count: int) -> Any:
    rows = [k14.SyncGroupRequestAssignment(member_id=str(n), assignment=b"") for n in range(count)]
    return k14.SyncGroupRequest(
        group_id="g", member_id="m", protocol_type="p", protocol_name="p", assignments=rows
    )


def elect(count: int) -> Any:
    asked = k43.TopicPartitions(topic="t", partitions=list(range(count - 1)))
    return k43.ElectLeadersRequest(topic_partitions=[asked])


def heartbeat(count: int) -> Any:
    names = [str(at) for at in range(count)]
    return k68.ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", subscribed_topic_names=names, rebalance_timeout_ms=1
    )


def markers(count: int) -> Any:
    topic = k27.WritableTxnMarkerTopic(name="t", partition_indexes=list(range(count - 2)))
    marker = k27.WritableTxnMarker(producer_id=1, producer_epoch=0, topics=[topic])
    return k27.WriteTxnMarkersRequest(markers=[marker])


def names(count: int) -> list[str]:
    return [str(at) for at in range(count)]


CASES = [
    pytest.param(k11.API, 9, join, FEW, id="protocols of a member"),
    pytest.param(k13.API, 5, leave, FEW, id="members that leave"),
    pytest.param(k14.API, 5, sync, FEW, id="assignments"),
    pytest.param(k27.API, 1, markers, FEW, id="markers of an operator"),
    pytest.param(
        k16.API, 5, lambda n: k16.ListGroupsRequest(states_filter=names(n)), FEW, id="states"
    ),
    pytest.param(
        k66.API,
        2,
        lambda n: k66.ListTransactionsRequest(state_filters=names(n)),
        FEW,
        id="states of transactions",
    ),
    pytest.param(
        k19.API,
        7,
        lambda n: k19.CreateTopicsRequest(
            topics=[k19.CreatableTopic(name=str(at)) for at in range(n)], timeout_ms=1
        ),
        MANY,
        id="topics to create",
    ),
    pytest.param(
        k20.API,
        5,
        lambda n: k20.DeleteTopicsRequest(topic_names=names(n), timeout_ms=1),
        MANY,
        id="topics to delete",
    ),
    pytest.param(k43.API, 2, elect, MANY, id="partitions to elect leaders for"),
    pytest.param(k68.API, 1, heartbeat, MANY, id="subscribed topics"),
]


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0")
    bench.aside = []
    return bench


def begun(bench: GroupBench, api: Any, version: int, request: Any) -> FakeClient:
    client = FakeClient()
    bench.begin(client, api, version, request)
    turns(bench)
    return client


@pytest.mark.parametrize(("api", "version", "make", "most"), CASES)
def test_one_of_more_elements_than_its_api_allows_ends_its_connection(
    bench: GroupBench, api: Any, version: int, make: Make, most: int
) -> None:
    client = begun(bench, api, version, make(most + 1))
    assert client.closed is not None
    assert "too many elements" in client.closed
    assert not bench.link.forwarded
    assert not bench.transactions.forwarded
    assert bench.broker.received.kept == 0


@pytest.mark.parametrize(("api", "version", "make", "most"), CASES)
def test_one_of_as_many_elements_as_its_api_allows_is_begun(
    bench: GroupBench, api: Any, version: int, make: Make, most: int
) -> None:
    client = begun(bench, api, version, make(most))
    assert client.closed is None
    assert bench.faults == []
