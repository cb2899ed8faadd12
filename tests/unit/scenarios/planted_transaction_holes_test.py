"""Every known hole of transactions is caught when it is put back, by its own scenario in a
simulated cluster; where there is none, the scenario passes.
"""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from harness.faults import transaction_plants as plants
from harness.faults.planting import Plant, Planting
from harness.simulation.cluster import A, B, C
from harness.simulation.transaction_kills import DATA, STATE, Killing, markers_in, steps_of
from harness.simulation.transaction_scene import TransactionScene
from harness.simulation.transactor import TransactionProcess
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import BrokerId
from tidelog.wire.transactions import Append, FromTransactions
from unit.scenarios.scenario_transactions_test import (
    late_produce,
    late_requests,
    opened,
    paused_coordinator,
    zombie_producer,
)

P0, P1 = DATA
SHORT_MS = 1_000


def late_batch() -> None:
    late_produce(TransactionScene())


def two_producers() -> None:
    zombie_producer(TransactionScene())


def late_end() -> None:
    late_requests(TransactionScene(), bumps=True)


def plain_transaction() -> None:
    scene = TransactionScene()
    client = scene.begun()
    client.finish(client.transaction([P0]))
    scene.check()


def coordinator_dies_between_two_markers() -> None:
    """With the client, which cannot ask again."""
    scene = TransactionScene()
    client = scene.begun(timeout_ms=SHORT_MS)
    killing = Killing(scene, client, victim="coordinator", dies=True)
    killing.at("marker t-0", "committed", client)
    first = scene.cluster.transactor.process

    def holds_back(process: TransactionProcess, _to: BrokerId, message: FromTransactions) -> bool:
        return process is not first or "marker t-1" not in steps_of(message)

    scene.cluster.transactor.look = holds_back
    client.finish(client.transaction(DATA))
    scene.cluster.run(2 * SHORT_MS)
    assert killing.is_done
    scene.check()


def slow_way_to_a_leader() -> None:
    scene = TransactionScene()
    client = scene.begun()
    scene.cluster.network.slow(scene.cluster.transactor.process.me, scene.until_led(P0), 50)
    for _ in range(3):
        client.finish(client.transaction([P0]))
    scene.cluster.run(500)
    scene.check()


def lone_leader_of_the_state(scene: TransactionScene) -> None:
    """What its log holds, nobody else's does."""
    for other in (B, C):
        scene.cluster.network.cut(A, other)


def outcome_in_a_log_that_loses_it() -> None:
    scene = TransactionScene(data=(B, C), offsets=(C, B))
    client = scene.begun(timeout_ms=SHORT_MS)
    client.finish(opened(client, P0))
    lone_leader_of_the_state(scene)
    client.live(client.end(scene.truth.written[0], committed=True))
    scene.cluster.run(5)
    client.dies()
    scene.cluster.transactor.kill()
    scene.cluster.run(100)
    scene.cluster.kill(A)
    for other in (B, C):
        held = scene.cluster.network.pipe(A, other)
        held.lose_oldest(len(held.held))
        scene.cluster.network.heal_link(A, other)
    scene.cluster.run(2 * SHORT_MS)
    scene.heal()
    scene.until(lambda: scene.state() in {TxnState.COMPLETE_ABORT, TxnState.COMPLETE_COMMIT})
    scene.check()
    assert markers_in(scene, P0) == [False], "T2: what no log holds came true"


def acknowledged_in_a_log_that_loses_it() -> None:
    """Whoever hears that a partition is part of the transaction writes to it."""
    scene = TransactionScene(data=(B, C), offsets=(C, B))
    client = scene.begun()
    written = scene.truth.begun(client)
    lone_leader_of_the_state(scene)
    client.live(client.add(written, P0))
    scene.cluster.run(20)
    scene.cluster.kill(A)
    for other in (B, C):
        scene.cluster.network.heal_link(A, other, lose=True)
    scene.until(lambda: client.is_over)
    client.finish(client.write(written, P0))
    client.finish(client.end(written, committed=True))
    scene.check()


def zombie_s_append() -> None:
    """What a coordinator said before it stood still comes when its successor has decided."""
    scene = TransactionScene()
    cluster, transactor = scene.cluster, scene.cluster.transactor
    client = scene.begun(timeout_ms=SHORT_MS)
    client.finish(opened(client, P0))
    zombie, held = transactor.process, list[Append]()

    def holds(process: TransactionProcess, _to: BrokerId, message: FromTransactions) -> bool:
        if process is zombie and "Prepare" in steps_of(message):
            assert isinstance(message, Append)
            held.append(message)
            transactor.pause()
            return False
        return True

    transactor.look = holds
    client.live(client.end(scene.truth.written[0], committed=True))
    scene.until(lambda: bool(held))
    client.dies()
    successor = transactor.start()
    scene.until(lambda: successor.machine is not None)
    for life in list(cluster.lives.values()):
        cluster.transactions.connect(life)
    scene.until(lambda: scene.state() is TxnState.COMPLETE_ABORT)
    leader = scene.until_led(STATE)
    session = cluster.lives[leader].transactions.service._link.session
    cluster.transactions.to_broker(leader, replace(held[0], session=session), successor.me)
    cluster.run(100)
    transactor.kill(zombie)
    scene.check()


def paused() -> None:
    paused_coordinator(TransactionScene())


def marker_that_its_leader_alone_has() -> None:
    """A last stable offset that somebody was told does not go back, whoever leads next."""
    scene = TransactionScene(data=(B, C, A), state=(A, C), offsets=(C, A))
    client = scene.begun()
    client.finish(opened(client, P0))
    scene.cluster.run(50)
    for other in (A, C):
        scene.cluster.network.cut(B, other)
    client.live(client.end(scene.truth.written[0], committed=True))
    scene.until(lambda: scene.cluster.replica(B, *P0).log.end == 2)
    _, told = scene.read(P0)
    scene.cluster.kill(B)
    scene.until(lambda: scene.leader(P0) != B)
    replica = scene.cluster.replica(scene.until_led(P0), *P0)
    now = replica.log.last_stable_offset(replica.high_watermark)
    assert now >= told, f"the last stable offset went from {told} to {now}"
    for other in (A, C):
        scene.cluster.network.heal_link(B, other, lose=True)
    scene.until(lambda: client.is_over)
    scene.check()


HOLES: dict[str, tuple[Plant, Callable[[], None]]] = {
    "kip_890_part_1": (plants.verification_off, late_batch),
    "prepare_skipped": (
        plants.prepared_only_in_memory,
        coordinator_dies_between_two_markers,
    ),
    "marker_elsewhere": (plants.marker_to_another_partition, plain_transaction),
    "epoch_not_bumped": (plants.epoch_not_bumped, two_producers),
    "late_request_is_taken": (plants.late_request_is_taken, late_end),
    "marker_again_by_time": (plants.marker_again_by_time, slow_way_to_a_leader),
    "no_barrier": (plants.no_barrier, outcome_in_a_log_that_loses_it),
    "zombie_accepted": (plants.zombie_accepted, zombie_s_append),
    "unreplicated_marker_counts": (
        plants.unreplicated_marker_counts,
        marker_that_its_leader_alone_has,
    ),
    "answer_before_commit": (
        plants.answer_before_commit,
        acknowledged_in_a_log_that_loses_it,
    ),
}


@pytest.mark.parametrize("name", HOLES)
def test_a_planted_hole_is_caught_by_its_scenario(name: str, planting: Planting) -> None:
    planting.is_noticed(*HOLES[name])
