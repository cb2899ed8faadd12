"""The named scenarios of 5.21 that groups answer for, in either protocol where both have them."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.classic_clients import SESSION_MS, Client, form
from harness.machines.group_bench import GroupBench, commit, elected_again, fetch_offsets
from harness.machines.mixed_groups import GROUP, Classic, Modern, turns
from harness.machines.mixed_scenes import code, coordinator
from tidelog.node.groups import requests as ask
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k68_consumer_group_heartbeat as k68

MINUTE_MS = 60_000


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0", offsets_retention_minutes="60")
    bench.topic("t", 2)
    return bench


def beat(bench: GroupBench, epoch: int) -> Any:
    joins = epoch == 0
    request = k68.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=60_000 if joins else -1,
        subscribed_topic_names=["t"] if joins else None,
        topic_partitions=[] if joins else None,
    )
    return bench.ask(k68.API, 1, request)


# -- offset_expiry_live_group -------------------------------------------------------------------


def test_offset_expiry_live_group_classic(bench: GroupBench) -> None:
    """However old a commit is, while somebody is in the group it stays; then its time begins."""
    one = Client(bench, session_ms=30 * MINUTE_MS)
    form(bench, one)
    member = {"generation_id_or_member_epoch": 1, "member_id": one.member_id}
    assert commit(bench, "g", {"t": [5]}, **member) == [0]
    for _ in range(9):
        bench.later(20 * MINUTE_MS)
        assert one.beat() == 0
    assert fetch_offsets(bench, "g") == {("t", 0): 5}
    elected_again(bench, epoch=1)
    bench.load()
    bench.later(20 * MINUTE_MS)
    assert fetch_offsets(bench, "g") == {("t", 0): 5}, "the fail-over forgot nobody"
    one.leave()
    bench.later(50 * MINUTE_MS)
    assert fetch_offsets(bench, "g") == {("t", 0): 5}
    bench.later(30 * MINUTE_MS)
    assert fetch_offsets(bench, "g") == {}


def test_offset_expiry_live_group_consumer(bench: GroupBench) -> None:
    epoch = beat(bench, 0).member_epoch
    member = {"generation_id_or_member_epoch": epoch, "member_id": "m"}
    assert commit(bench, "g", {"t": [5]}, version=9, **member) == [0]
    for _ in range(6 * 60):
        bench.later(30_000)
        assert beat(bench, epoch).error_code == 0
    assert fetch_offsets(bench, "g") == {("t", 0): 5}
    assert beat(bench, -1).error_code == 0
    bench.later(11 * MINUTE_MS)
    assert fetch_offsets(bench, "g") == {}, "its time began with the commit, as Kafka has it"


# -- zombie_member_commit -----------------------------------------------------------------------


def test_zombie_member_commit_classic(bench: GroupBench) -> None:
    """Generation 3 is over: what its member had read meanwhile does not count in 4."""
    one, two = Client(bench), Client(bench)
    form(bench, one, two)
    for _ in range(2):
        one.start_joining()
        form(bench, one, two)
    assert one.generation == 3
    zombie = {"generation_id_or_member_epoch": 3, "member_id": two.member_id}
    assert commit(bench, "g", {"t": [1]}, **zombie) == [0]
    bench.later(SESSION_MS - 1)
    one.beat()
    bench.later(2)
    form(bench, one)
    assert one.generation == 4
    member = {"generation_id_or_member_epoch": 4, "member_id": one.member_id}
    assert commit(bench, "g", {"t": [7]}, **member) == [0]
    assert commit(bench, "g", {"t": [3]}, **zombie) == [ErrorCode.UNKNOWN_MEMBER_ID]
    late = {**zombie, "member_id": one.member_id}
    assert commit(bench, "g", {"t": [3]}, **late) == [ErrorCode.ILLEGAL_GENERATION]
    assert fetch_offsets(bench, "g") == {("t", 0): 7}


@pytest.mark.parametrize("kind", [Classic, Modern])
def test_zombie_member_commit_consumer(kind: type[Classic | Modern]) -> None:
    """Of a group of the consumer protocol; its member may speak either."""
    at = coordinator()
    keeper, zombie = Modern(at, "keeper", "t"), kind(at, "zombie", "t")
    turns([keeper, zombie])
    place = min(zombie.uses)
    assert zombie.commit({place: 3})
    for _ in range(50):
        at.wait(1)
        keeper.turn()
    assert place in keeper.uses
    assert keeper.commit({place: 7})
    assert not zombie.commit({place: 4})
    zombie.generation = keeper.generation
    assert not zombie.commit({place: 4})
    found = at.answer(ask.FetchOffsets(GROUP, None, -1, (place,), require_stable=False))
    assert found.rows[0][2].offset == 7


# -- static_member_twin -------------------------------------------------------------------------


def test_static_member_twin_classic(bench: GroupBench) -> None:
    one, two = Client(bench), Client(bench, instance="i")
    parts = form(bench, one, two)
    former, two.member_id = two.member_id, ""
    assert two.take(two.start_joining().answer()) == 0
    twin = Client(bench, instance="i")
    twin.member_id, twin.generation = former, two.generation
    fenced = ErrorCode.FENCED_INSTANCE_ID
    member = {
        "generation_id_or_member_epoch": twin.generation,
        "member_id": former,
        "group_instance_id": "i",
    }
    assert (twin.beat(), commit(bench, "g", {"t": [1]}, **member)) == (fenced, [fenced])
    assert twin.start_syncing().answer().error_code == fenced
    assert twin.start_joining().answer().error_code == fenced
    assert two.start_syncing().answer().assignment == parts[former]


def test_static_member_twin_consumer() -> None:
    """While the first lives the second is turned away; once it came for the first, that is out."""
    at = coordinator()
    one, twin = (Modern(at, name, "t", instance="i") for name in ("one", "twin"))
    turns([one])
    join = ConsumerHeartbeat(
        GROUP, "twin", 0, instance_id="i", rebalance_timeout_ms=1, topics=("t",), owned=()
    )
    assert code(at.answer(join)) == ErrorCode.UNRELEASED_INSTANCE_ID
    epoch = one.generation
    one.leave()
    turns([twin])
    assert len(twin.uses) == 6
    late = ConsumerHeartbeat(GROUP, "one", epoch, instance_id="i")
    assert code(at.answer(late)) == ErrorCode.FENCED_INSTANCE_ID


# -- coordinator_move_mid_rebalance -------------------------------------------------------------


def test_coordinator_move_mid_rebalance_classic(bench: GroupBench) -> None:
    """At every moment of it: members come again, and no generation is given to two sets of them."""
    one, two = Client(bench), Client(bench)
    form(bench, one)
    member = {"generation_id_or_member_epoch": 1, "member_id": one.member_id}
    assert commit(bench, "g", {"t": [5]}, **member) == [0]
    two.get_id()
    waits = two.start_joining()
    moved(bench, 1)
    assert waits.answer().error_code == ErrorCode.NOT_COORDINATOR
    assert one.beat() == 0, "the generation of before goes on"
    two.member_id = ""
    two.get_id()
    waits, again = two.start_joining(), one.start_joining()
    assert {waits.answer().error_code, again.answer().error_code} == {0}
    one.take(again.answer())
    two.take(waits.answer())
    assert (one.generation, two.generation) == (2, 2)
    moved(bench, 2)
    assert (one.beat(), two.beat()) == (ErrorCode.REBALANCE_IN_PROGRESS,) * 2
    parts = form(bench, one, two)
    assert (one.generation, len(parts)) == (3, 2)
    assert fetch_offsets(bench, "g") == {("t", 0): 5}


def moved(bench: GroupBench, epoch: int) -> None:
    elected_again(bench, epoch=epoch)
    bench.load()


@pytest.mark.parametrize("steps", range(8))
def test_coordinator_move_mid_rebalance_consumer(steps: int) -> None:
    at = coordinator()
    one, two = Modern(at, "one", "t"), Modern(at, "two", "t")
    turns([one])
    assert one.commit({("t", 0): 5})
    members = [two, one] * 4
    for member in members[:steps]:
        member.turn()
    at.restart()
    turns([one, two])
    assert (len(one.uses), len(two.uses), one.uses & two.uses) == (3, 3, frozenset())
    assert one.generation == two.generation == 2, "the fail-over moved nothing"
    found = at.answer(ask.FetchOffsets(GROUP, None, -1, (("t", 0),), require_stable=False))
    assert found.rows[0][2].offset == 5
