"""The supervisor's plan: what is spawned, signalled and told, and in which order it ends."""

import signal
from collections.abc import Sequence

import pytest

from tidelog.kernel.ids import Incarnation
from tidelog.kernel.instant import Instant, ms, s
from tidelog.node.ipc.layout import Role
from tidelog.tools.supervisor.plan import (
    CRASHES_KEPT_MAX,
    KILLS_FORGIVEN_MAX,
    LIVED_LONG_ENOUGH,
    RESTART_DELAY_FIRST,
    RESTART_DELAY_MAX,
    Action,
    AddAsked,
    BecameReady,
    EndAsked,
    Ended,
    Event,
    Finish,
    GiveUp,
    Name,
    Opened,
    Phase,
    Plan,
    Refused,
    RemoveAsked,
    Send,
    Spawn,
    Spawned,
    StartAsked,
    StopAsked,
    Tell,
    Ticked,
    ending,
)

COORDINATOR = Name(Role.COORDINATOR, 0)
BROKER_0 = Name(Role.BROKER, 0)
BROKER_1 = Name(Role.BROKER, 1)
ALL = (COORDINATOR, BROKER_0, BROKER_1)
STANDBY_1, STANDBY_2 = Name(Role.COORDINATOR, 1), Name(Role.COORDINATOR, 2)
WITH_STANDBYS = (COORDINATOR, STANDBY_1, STANDBY_2, BROKER_0)


class Bench:
    """A plan, a clock, and pids given out in order."""

    def __init__(self, names: Sequence[Name] = ALL, *, restart: bool = False) -> None:
        self.names = names
        self.plan = Plan.of(names, restart=restart, next_incarnation=Incarnation(1))
        self.now = Instant(s(1))
        self.pid = 100

    def step(self, event: Event) -> list[Action]:
        return self.plan.step(self.now, event)

    def spawn_due(self) -> list[Spawn]:
        """Let the shell do what is due now."""
        spawns = [action for action in self.step(Ticked()) if isinstance(action, Spawn)]
        for spawn in spawns:
            self.pid += 1
            self.step(Spawned(spawn.name, self.pid))
        return spawns

    def opened(self) -> "Bench":
        self.spawn_due()
        for name in self.names:
            self.step(BecameReady(name, leads=name not in {STANDBY_1, STANDBY_2}))
        assert self.plan.opened
        return self

    def pass_time(self, duration: int) -> None:
        self.now = Instant(self.now + duration)


def sent(actions: Sequence[Action]) -> list[tuple[Name, signal.Signals]]:
    return [(action.name, action.signal) for action in actions if isinstance(action, Send)]


def terminated(actions: Sequence[Action]) -> list[Name]:
    return [name for name, number in sent(actions) if number is signal.SIGTERM]


def test_everything_is_spawned_at_once_each_with_an_incarnation_of_its_own() -> None:
    assert Bench().step(Ticked()) == [
        Spawn(COORDINATOR, Incarnation(1)),
        Spawn(BROKER_0, Incarnation(2)),
        Spawn(BROKER_1, Incarnation(3)),
    ]


def test_a_spawn_under_way_is_not_asked_for_again() -> None:
    bench = Bench()
    bench.step(Ticked())
    assert bench.step(Ticked()) == []


def test_the_cluster_is_open_once_the_last_process_is_ready() -> None:
    bench = Bench()
    bench.spawn_due()
    assert bench.step(BecameReady(BROKER_1)) == []
    assert bench.step(BecameReady(COORDINATOR)) == []
    assert bench.step(BecameReady(BROKER_0)) == [Opened()]


def test_it_opens_only_once() -> None:
    bench = Bench().opened()
    bench.step(Ended(COORDINATOR, -9))
    bench.spawn_due()
    assert bench.step(BecameReady(COORDINATOR)) == []


def test_a_process_that_refuses_ends_the_start_with_its_sentence() -> None:
    bench = Bench()
    bench.spawn_due()
    bench.step(Refused(BROKER_1, "port 1 is in use: stop it"))
    actions = bench.step(Ended(BROKER_1, 1))
    assert GiveUp("cannot start broker 1: port 1 is in use: stop it") in actions
    assert terminated(actions) == [BROKER_0]


def test_a_process_that_dies_while_starting_ends_the_start() -> None:
    bench = Bench()
    bench.spawn_due()
    actions = bench.step(Ended(COORDINATOR, -11))
    sentence = "cannot start coordinator: it ended before it was ready (killed by SIGSEGV)"
    assert GiveUp(sentence) in actions


def test_a_broker_that_dies_stays_down() -> None:
    bench = Bench().opened()
    assert bench.step(Ended(BROKER_0, -9)) == [Tell("died", BROKER_0)]
    assert bench.plan.processes[BROKER_0].phase is Phase.ENDED
    bench.pass_time(s(60))
    assert bench.step(Ticked()) == []


def test_a_broker_that_dies_comes_back_where_restarts_were_asked_for() -> None:
    bench = Bench(restart=True).opened()
    assert bench.step(Ended(BROKER_0, -9)) == [
        Tell("died", BROKER_0),
        Spawn(BROKER_0, Incarnation(4)),
    ]


def test_the_coordinator_always_comes_back_with_a_new_incarnation() -> None:
    bench = Bench().opened()
    actions = bench.step(Ended(COORDINATOR, -9))
    assert actions == [Tell("died", COORDINATOR), Spawn(COORDINATOR, Incarnation(4))]


def test_a_process_that_dies_again_and_again_is_started_less_and_less_often() -> None:
    bench = Bench().opened()
    delays = []
    for _ in range(10):
        bench.pid += 1
        bench.step(Ended(COORDINATOR, 1))
        due = bench.plan.deadline()
        if due is None:  # it was spawned at once
            due = bench.now
        delays.append(due - bench.now)
        bench.pass_time(delays[-1])
        if bench.plan.processes[COORDINATOR].spawning:
            bench.step(Spawned(COORDINATOR, bench.pid))
        else:
            bench.spawn_due()
    assert delays[:4] == [0, ms(100), ms(200), ms(400)]
    assert delays == sorted(delays)
    assert delays[-1] == RESTART_DELAY_MAX


def test_who_lived_long_enough_is_restarted_at_once_again() -> None:
    bench = Bench().opened()
    for _ in range(2):
        bench.step(Ended(COORDINATOR, 1))
        bench.pass_time(ms(100))
        bench.spawn_due()
        if bench.plan.processes[COORDINATOR].spawning:
            bench.step(Spawned(COORDINATOR, 7))
    bench.step(BecameReady(COORDINATOR))
    bench.pass_time(LIVED_LONG_ENOUGH)
    assert LIVED_LONG_ENOUGH <= s(1)  # who kills it each second finds it back at once
    assert Spawn(COORDINATOR, Incarnation(6)) in bench.step(Ended(COORDINATOR, 1))


def test_who_is_killed_at_its_work_is_back_at_once_however_often() -> None:
    bench = Bench().opened()
    for _ in range(KILLS_FORGIVEN_MAX):
        assert [one for one in bench.step(Ended(COORDINATOR, -9)) if isinstance(one, Spawn)]
        bench.step(Spawned(COORDINATOR, 7))
        bench.step(BecameReady(COORDINATOR))
        bench.pass_time(ms(50))


def test_who_is_killed_without_end_is_started_less_often() -> None:
    bench = Bench().opened()
    plan = bench.plan
    for _ in range(KILLS_FORGIVEN_MAX + 1):
        bench.step(Ended(COORDINATOR, -9))
        bench.step(Spawned(COORDINATOR, 7))
        bench.step(BecameReady(COORDINATOR))
    bench.step(Ended(COORDINATOR, -9))
    assert plan.deadline() == bench.now + RESTART_DELAY_FIRST


@pytest.mark.parametrize("code", [-9, 1, -11])
def test_who_ends_before_it_works_is_not_forgiven(code: int) -> None:
    bench = Bench().opened()
    for _ in range(2):
        bench.step(Ended(COORDINATOR, -9))
        bench.step(Spawned(COORDINATOR, 7))
    bench.step(Ended(COORDINATOR, code))
    assert bench.plan.deadline() == bench.now + RESTART_DELAY_FIRST


def test_a_stop_wakes_a_paused_process_so_that_it_can_end() -> None:
    bench = Bench().opened()
    assert sent(bench.step(StopAsked(BROKER_0))) == [
        (BROKER_0, signal.SIGTERM),
        (BROKER_0, signal.SIGCONT),
    ]


def test_a_stopped_broker_stays_down_though_restarts_were_asked_for() -> None:
    bench = Bench(restart=True).opened()
    bench.step(StopAsked(BROKER_0))
    assert bench.step(Ended(BROKER_0, 0)) == [Tell("stopped", BROKER_0)]
    bench.pass_time(s(60))
    assert bench.step(Ticked()) == []


def test_an_ended_broker_is_started_when_asked() -> None:
    bench = Bench().opened()
    bench.step(Ended(BROKER_0, -9))
    assert bench.step(StartAsked(BROKER_0)) == [Spawn(BROKER_0, Incarnation(4))]


def test_the_end_goes_from_the_brokers_to_the_coordinator() -> None:
    bench = Bench().opened()
    assert terminated(bench.step(EndAsked())) == [BROKER_0, BROKER_1]
    assert terminated(bench.step(Ended(BROKER_1, 0))) == []
    assert terminated(bench.step(Ended(BROKER_0, 0))) == [COORDINATOR]
    assert bench.step(Ended(COORDINATOR, 0)) == [Tell("stopped", COORDINATOR), Finish()]


def test_nothing_is_spawned_once_the_end_has_begun() -> None:
    bench = Bench(restart=True).opened()
    bench.step(EndAsked())
    assert Spawn not in [type(action) for action in bench.step(Ended(COORDINATOR, -9))]
    assert bench.step(StartAsked(COORDINATOR)) == []
    assert bench.plan.deadline() is None


def test_force_kills_everything_that_is_left() -> None:
    bench = Bench().opened()
    bench.step(EndAsked())
    bench.step(Ended(BROKER_1, 0))
    assert sent(bench.step(EndAsked(force=True))) == [
        (COORDINATOR, signal.SIGKILL),
        (BROKER_0, signal.SIGKILL),
    ]


def test_the_end_of_what_has_not_begun_is_at_once() -> None:
    assert Bench().step(EndAsked()) == [Finish()]


def test_a_process_that_was_being_forked_when_the_end_came_is_ended_too() -> None:
    bench = Bench()
    bench.step(Ticked())
    assert Finish() not in bench.step(EndAsked())
    assert terminated(bench.step(Spawned(BROKER_0, 5))) == [BROKER_0]


def test_a_waiting_restart_can_be_called_off() -> None:
    bench = Bench(restart=True).opened()
    for _ in range(2):
        bench.step(Ended(BROKER_0, 1))
        if bench.plan.processes[BROKER_0].spawning:
            bench.step(Spawned(BROKER_0, 9))
    assert bench.plan.processes[BROKER_0].phase is Phase.WAITING
    bench.step(StopAsked(BROKER_0))
    bench.pass_time(s(60))
    assert bench.step(Ticked()) == []


def test_crashes_are_kept_with_what_is_known_and_not_without_bound() -> None:
    bench = Bench().opened()
    bench.step(Ended(BROKER_0, -9))
    crash = bench.plan.crashes[0]
    assert (crash.name, crash.code, crash.incarnation) == (BROKER_0, -9, Incarnation(2))
    for _ in range(CRASHES_KEPT_MAX + 5):
        bench.step(StartAsked(BROKER_0))
        bench.step(Spawned(BROKER_0, 9))
        bench.step(Ended(BROKER_0, 1))
    assert len(bench.plan.crashes) == CRASHES_KEPT_MAX


def test_a_stop_as_asked_is_no_crash() -> None:
    bench = Bench().opened()
    bench.step(StopAsked(BROKER_0))
    bench.step(Ended(BROKER_0, -signal.SIGTERM))
    assert not bench.plan.crashes


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exit code 0"), (3, "exit code 3"), (-9, "killed by SIGKILL"), (-250, "signal 250")],
)
def test_an_end_has_a_name(code: int, text: str) -> None:
    assert text in ending(code)


def test_an_added_process_is_spawned_at_once_and_restarted_as_its_kind_is() -> None:
    for restart in (False, True):
        bench = Bench(restart=restart)
        bench.spawn_due()
        for name in ALL:
            bench.step(BecameReady(name))
        added = Name(Role.BROKER, 2)
        (spawn,) = bench.step(AddAsked(added))
        assert isinstance(spawn, Spawn)
        assert spawn.name == added
        bench.step(Spawned(added, 7))
        bench.step(BecameReady(added))
        after = bench.step(Ended(added, -signal.SIGKILL))
        assert any(isinstance(action, Spawn) for action in after) == restart


def test_a_removed_process_is_not_known_any_more() -> None:
    bench = Bench().opened()
    bench.step(StopAsked(BROKER_1))
    bench.step(Ended(BROKER_1, 0))
    assert bench.step(RemoveAsked(BROKER_1)) == []
    assert BROKER_1 not in bench.plan.processes
    assert terminated(bench.step(EndAsked())) == [BROKER_0]


def test_nothing_is_added_to_a_cluster_that_is_ending() -> None:
    bench = Bench()
    bench.spawn_due()
    bench.step(EndAsked())
    assert bench.step(AddAsked(Name(Role.BROKER, 2))) == []


def test_standbys_end_before_the_coordinator_that_leads() -> None:
    bench = Bench(WITH_STANDBYS).opened()
    bench.step(Ended(COORDINATOR, -9))
    bench.step(BecameReady(STANDBY_2))
    bench.step(Spawned(COORDINATOR, 200))
    bench.step(BecameReady(COORDINATOR, leads=False))
    assert terminated(bench.step(EndAsked())) == [BROKER_0]
    assert terminated(bench.step(Ended(BROKER_0, 0))) == [COORDINATOR, STANDBY_1]
    assert bench.step(Ended(COORDINATOR, 0)) == [Tell("stopped", COORDINATOR)]
    assert terminated(bench.step(Ended(STANDBY_1, 0))) == [STANDBY_2]
    assert Finish() in bench.step(Ended(STANDBY_2, 0))


def test_who_leads_is_who_said_so_last() -> None:
    bench = Bench(WITH_STANDBYS).opened()
    assert [bench.plan.stands_by(name) for name in WITH_STANDBYS] == [False, True, True, False]
    bench.step(Ended(COORDINATOR, -9))
    assert not bench.plan.stands_by(COORDINATOR)
    bench.step(BecameReady(STANDBY_1))
    assert [bench.plan.stands_by(name) for name in WITH_STANDBYS] == [True, False, True, False]


def test_a_coordinator_stands_by_where_another_one_lives() -> None:
    bench = Bench(WITH_STANDBYS)
    assert not bench.plan.others_live(COORDINATOR)
    bench.opened()
    assert bench.plan.others_live(COORDINATOR)
    for name in (STANDBY_1, STANDBY_2):
        bench.step(Ended(name, -9))
    assert not bench.plan.others_live(COORDINATOR)
    assert bench.plan.others_live(STANDBY_1)


def test_a_standby_that_dies_comes_back() -> None:
    bench = Bench(WITH_STANDBYS).opened()
    assert Spawn(STANDBY_1, Incarnation(5)) in bench.step(Ended(STANDBY_1, -9))
