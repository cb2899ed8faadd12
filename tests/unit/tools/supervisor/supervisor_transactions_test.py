"""The transaction coordinator in the supervisor's plan: after the start, and always there."""

from tidelog.kernel.ids import Incarnation
from tidelog.node.ipc.layout import Role
from tidelog.tools.supervisor.plan import (
    BecameReady,
    EndAsked,
    Ended,
    Finish,
    Name,
    Opened,
    Phase,
    Spawn,
    Spawned,
    Tell,
)
from unit.tools.supervisor.supervisor_plan_test import BROKER_0, COORDINATOR, Bench, terminated

TRANSACTIONS = Name(Role.TRANSACTION_COORDINATOR, 0)


def with_transactions() -> Bench:
    return Bench((COORDINATOR, BROKER_0, TRANSACTIONS))


def test_no_start_waits_for_the_transaction_coordinator_and_it_is_spawned_once_that_is_over() -> (
    None
):
    bench = with_transactions()
    assert [spawn.name for spawn in bench.spawn_due()] == [COORDINATOR, BROKER_0]
    assert bench.plan.deadline() is None
    bench.step(BecameReady(COORDINATOR))
    assert bench.step(BecameReady(BROKER_0)) == [Opened(), Spawn(TRANSACTIONS, Incarnation(3))]
    bench.step(Spawned(TRANSACTIONS, 9))
    assert [process.name for process in bench.plan.not_ready()] == [TRANSACTIONS]


def test_a_transaction_coordinator_that_cannot_start_ends_nothing_else() -> None:
    bench = with_transactions().opened()
    bench.step(Spawned(TRANSACTIONS, 9))
    bench.step(Ended(TRANSACTIONS, 70))
    assert not bench.plan.ending
    assert bench.plan.processes[TRANSACTIONS].phase is Phase.WAITING


def test_the_transaction_coordinator_comes_back_at_once() -> None:
    bench = with_transactions().opened()
    bench.step(Spawned(TRANSACTIONS, 9))
    bench.step(BecameReady(TRANSACTIONS))
    actions = bench.step(Ended(TRANSACTIONS, -9))
    assert actions == [Tell("died", TRANSACTIONS), Spawn(TRANSACTIONS, Incarnation(4))]


def test_the_transaction_coordinator_ends_between_brokers_and_coordinator() -> None:
    bench = with_transactions().opened()
    bench.step(Spawned(TRANSACTIONS, 9))
    assert terminated(bench.step(EndAsked())) == [BROKER_0]
    assert terminated(bench.step(Ended(BROKER_0, 0))) == [TRANSACTIONS]
    assert terminated(bench.step(Ended(TRANSACTIONS, 0))) == [COORDINATOR]


def test_an_end_that_comes_before_the_transaction_coordinator_does_not_wait_for_it() -> None:
    bench = with_transactions()
    bench.spawn_due()
    bench.step(EndAsked())
    bench.step(Ended(BROKER_0, 0))
    assert Finish() in bench.step(Ended(COORDINATOR, 0))
