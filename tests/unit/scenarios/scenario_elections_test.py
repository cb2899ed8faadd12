"""Named scenario 5.7: who may lead after deaths in every order."""

from itertools import permutations

import pytest

from harness.simulation.cluster import A, B, C
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import BrokerId, Partition
from tidelog.wire.errors import ErrorCode

ALL = (A, B, C)
NAMES = "ABC"
KEY = ("t", Partition(0))


def _named(order: tuple[BrokerId, ...]) -> str:
    return "".join(NAMES[one] for one in order)


ORDERS = [
    pytest.param(deaths, returns, id=f"{_named(deaths)}-{_named(returns)}")
    for deaths in permutations(ALL)
    for returns in permutations(ALL)
]


def _all_die(scene: Scene, deaths: tuple[BrokerId, ...]) -> int:
    """One after the other, while writes go on; how many records are committed."""
    cluster = scene.cluster
    first, second, third = deaths
    scene.wrote(A, 5)
    cluster.kill(first)
    scene.until_isr(second, third)
    scene.wrote(scene.the_leader(), 3)  # a) writes go on
    cluster.kill(second)
    scene.until_isr(third)
    assert scene.the_leader() == third
    refused = scene.clients.write(third)  # b) none is taken that could be lost
    cluster.until(lambda: refused.is_over)
    assert refused.code == ErrorCode.NOT_ENOUGH_REPLICAS
    alone = scene.clients.write(third, acks=1)
    cluster.until(lambda: alone.is_over)
    committed = cluster.witness.truth(KEY).end
    assert alone.is_acked
    assert scene.high(third) <= committed < scene.end(third)  # frozen
    assert scene.clients.fetch(third, 0).error_code == 0  # reads go on
    assert set(cluster.view().elr) == {second}
    cluster.kill(third)
    cluster.until(lambda: scene.leader() is None)
    assert (scene.isr(), set(cluster.view().elr)) == (set(), {second, third})
    return committed


def _apart_from_all(scene: Scene, broker: BrokerId) -> None:
    for other in ALL:
        if other != broker:
            scene.apart(broker, other)


def _takes_nothing_alone(scene: Scene, leader: BrokerId) -> None:
    """e) Elected, and alone in sync: it refuses what could be lost. Then the others may come."""
    assert (scene.leader(), scene.isr()) == (leader, {leader})
    end = scene.end(leader)
    refused = scene.clients.write(leader)
    scene.cluster.until(lambda: refused.is_over)
    assert refused.code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert scene.end(leader) == end
    for one in ALL:
        for other in ALL:
            if one < other:
                scene.together(one, other)


@pytest.mark.parametrize(("deaths", "returns"), ORDERS)
def test_crash_orders(deaths: tuple[BrokerId, ...], returns: tuple[BrokerId, ...]) -> None:
    """5.7: killed processes keep their files; elected is who was in sync or eligible, at once."""
    scene = Scene(A, B, C)
    cluster, clients = scene.cluster, scene.clients
    committed = _all_die(scene, deaths)
    eligible = set(deaths[1:])
    epoch = cluster.view().leader_epoch
    back: list[BrokerId] = []
    first = next(one for one in returns if one in eligible)
    for one in returns:
        if one == first:
            _apart_from_all(scene, first)  # so that it stays alone until it is looked at
        scene.start(one)
        back.append(one)
        cluster.run(500)
        if not eligible & set(back):
            assert scene.leader() is None  # d) it would lack what is committed
        if one == first:
            _takes_nothing_alone(scene, first)
    assert scene.leader() == first  # e)
    assert cluster.view().leader_epoch == epoch + 1
    assert scene.end(first) >= committed
    scene.until_isr(*ALL)  # f)
    scene.wrote(first)
    scene.settle()
    clients.check_all_is_there()
    assert cluster.view().lossy_elections == 0


@pytest.mark.parametrize(("deaths", "returns"), ORDERS)
def test_crash_orders_without_page_caches(
    deaths: tuple[BrokerId, ...], returns: tuple[BrokerId, ...]
) -> None:
    """5.7's other kind of return: the caches are gone. Nobody is trusted before all are back who
    may have what is committed; then the one that has most leads, and what is lost is counted."""
    scene = Scene(A, B, C)
    cluster, clients = scene.cluster, scene.clients
    scene.wrote(A, 2)
    scene.settle()
    for one in ALL:
        scene.sync(one)
    committed = _all_die(scene, deaths)
    assert committed == 10
    for one in ALL:
        cluster.lose_power(one)
    last_known = set(deaths[1:])
    back: set[BrokerId] = set()
    for one in ALL:
        _apart_from_all(scene, one)
    for one in returns:
        scene.start(one)
        cluster.run(500)
        back.add(one)
        if not last_known <= back:
            assert scene.leader() is None
    cluster.until(lambda: scene.leader() is not None)
    _takes_nothing_alone(scene, scene.the_leader())
    assert cluster.view().lossy_elections == 1
    assert scene.end(scene.the_leader()) == 2
    scene.until_isr(*ALL)
    scene.wrote(scene.the_leader())
    scene.settle()
    assert len({scene.log(one) for one in ALL}) == 1
    assert [one.base for one in cluster.witness.truth(KEY).lost] == [2, 7]
    assert clients.writes
