"""Who hangs: the stopped and the silent, and nobody because the machine was busy."""

from collections.abc import Mapping

from tidelog.kernel.instant import Instant, ms, s
from tidelog.kernel.limits import COORDINATOR_STOPPED_MS
from tidelog.node.ipc.layout import Role
from tidelog.tools.supervisor.hang import LOOK_EVERY, HangWatch, Hung, Reading, Resumed
from tidelog.tools.supervisor.plan import Name

BROKER = Name(Role.BROKER, 0)
COORDINATOR = Name(Role.COORDINATOR, 0)
BEGIN = s(100)


class Bench:
    """Looks at regular times; heartbeats are as fresh as the test says."""

    def __init__(self) -> None:
        self.watch = HangWatch()
        self.now = Instant(BEGIN)
        self.heard = self.now
        self.changes: list[tuple[int, Hung | Resumed]] = []

    def look(self, readings: Mapping[Name, Reading]) -> None:
        for change in self.watch.look(self.now, readings):
            self.changes.append((self.now - BEGIN, change))

    def run(
        self,
        duration: int,
        name: Name,
        *,
        stopped: bool = False,
        beats: bool = True,
        pid: int = 1,
        replaceable: bool = False,
    ) -> None:
        end = self.now + duration
        while self.now < end:
            self.now = Instant(self.now + LOOK_EVERY)
            if beats and not stopped:
                self.heard = self.now
            self.look({name: Reading(pid, stopped, self.heard, replaceable=replaceable)})


def test_a_process_that_beats_does_not_hang() -> None:
    bench = Bench()
    bench.run(s(20), BROKER)
    assert bench.changes == []


def test_a_stopped_broker_hangs_after_a_second() -> None:
    bench = Bench()
    bench.run(s(3), BROKER, stopped=True)
    ((after, change),) = bench.changes
    assert change == Hung(BROKER, "stopped")
    assert s(1) <= after <= s(1) + 2 * LOOK_EVERY


def test_a_broker_stopped_for_a_moment_does_not_hang() -> None:
    bench = Bench()
    for _ in range(5):
        bench.run(ms(750), BROKER, stopped=True)
        bench.run(ms(250), BROKER)
    assert bench.changes == []


def traced(
    bench: Bench, name: Name, *, heartbeat: int = 0, cpu: int = 0, switches: int = 0
) -> None:
    """For five seconds every look finds it stopped by its tracer; all grow from look to look."""
    heard = bench.now
    for number in range(1, 21):
        bench.now = Instant(bench.now + LOOK_EVERY)
        beat = Instant(heard + heartbeat * number)
        reading = Reading(
            1, stopped=True, heartbeat=beat, cpu_ns=cpu * number, switches=switches * number
        )
        bench.look({name: reading})


def test_a_process_whose_tracer_stops_it_at_every_look_does_not_hang_while_it_beats() -> None:
    for name in (BROKER, COORDINATOR):
        bench = Bench()
        bench.run(s(1), name)
        traced(bench, name, heartbeat=LOOK_EVERY)
        assert bench.changes == []


def test_a_process_whose_tracer_stops_it_at_every_look_does_not_hang_while_it_computes() -> None:
    bench = Bench()
    bench.run(s(1), BROKER)
    traced(bench, BROKER, cpu=ms(10))
    assert bench.changes == []


def test_a_process_whose_tracer_stops_it_at_every_look_does_not_hang_while_it_hardly_runs() -> None:
    """On a very busy machine it gets less of a CPU in a second than the kernel counts."""
    bench = Bench()
    bench.run(s(1), BROKER)
    traced(bench, BROKER, switches=1)
    assert bench.changes == []


def test_a_process_that_its_debugger_holds_hangs_after_it_last_ran() -> None:
    bench = Bench()
    bench.run(s(1), BROKER)
    traced(bench, BROKER, heartbeat=LOOK_EVERY)
    bench.heard = bench.now
    bench.run(s(2), BROKER, stopped=True)
    assert [change for _, change in bench.changes] == [Hung(BROKER, "stopped")]


def test_a_hung_broker_that_goes_on_has_resumed() -> None:
    bench = Bench()
    bench.run(s(2), BROKER, stopped=True)
    bench.run(s(1), BROKER)
    assert [change for _, change in bench.changes] == [Hung(BROKER, "stopped"), Resumed(BROKER)]


def test_a_silent_broker_hangs_after_six_seconds_and_not_before() -> None:
    bench = Bench()
    bench.run(s(1), BROKER)
    bench.run(s(5.5), BROKER, beats=False)
    assert bench.changes == []
    bench.run(s(1), BROKER, beats=False)
    assert [change for _, change in bench.changes] == [Hung(BROKER, "silent")]


def test_a_silent_coordinator_hangs_after_two_seconds() -> None:
    bench = Bench()
    bench.run(s(1), COORDINATOR)
    bench.run(s(2.5), COORDINATOR, beats=False)
    ((after, change),) = bench.changes
    assert change == Hung(COORDINATOR, "silent")
    assert s(3) <= after <= s(3) + 2 * LOOK_EVERY


def test_a_process_is_judged_from_its_first_heartbeat() -> None:
    bench = Bench()
    for _ in range(100):
        bench.now = Instant(bench.now + LOOK_EVERY)
        bench.look({BROKER: Reading(1, stopped=False, heartbeat=Instant(0))})
    assert bench.changes == []


def test_a_watcher_that_was_late_blames_nobody() -> None:
    bench = Bench()
    bench.run(s(1), COORDINATOR)
    heard = bench.now
    bench.now = Instant(bench.now + s(30))  # the whole machine stood still
    bench.look({COORDINATOR: Reading(1, stopped=False, heartbeat=heard)})
    assert bench.changes == []


def test_after_a_late_look_silence_counts_anew() -> None:
    bench = Bench()
    bench.run(s(1), COORDINATOR)
    heard = bench.now
    bench.now = Instant(bench.now + s(30))
    late = bench.now
    bench.look({COORDINATOR: Reading(1, stopped=False, heartbeat=heard)})
    while not bench.changes:
        bench.now = Instant(bench.now + LOOK_EVERY)
        bench.look({COORDINATOR: Reading(1, stopped=False, heartbeat=heard)})
    assert s(2) <= bench.now - late <= s(2) + LOOK_EVERY


def test_a_new_life_owes_nothing_to_the_old_one() -> None:
    bench = Bench()
    bench.run(s(2), BROKER, stopped=True, pid=1)
    assert bench.watch.is_hung(BROKER)
    bench.run(ms(250), BROKER, pid=2)
    assert not bench.watch.is_hung(BROKER)
    assert [change for _, change in bench.changes] == [Hung(BROKER, "stopped")]


def test_who_is_no_longer_looked_at_does_not_hang() -> None:
    bench = Bench()
    bench.run(s(2), BROKER, stopped=True)
    bench.look({})
    assert not bench.watch.is_hung(BROKER)


def test_a_stop_is_judged_at_its_moment_and_not_at_the_next_regular_look() -> None:
    bench = Bench()
    bench.run(s(1), BROKER)
    assert bench.watch.deadline() is None
    stopped = Reading(1, stopped=True, heartbeat=bench.heard)
    bench.now = Instant(bench.now + ms(30))  # a signal of the kernel's woke the watcher
    since = bench.now
    bench.look({BROKER: stopped})
    assert bench.watch.deadline() == since + s(1)
    bench.run(ms(750), BROKER, stopped=True, beats=False)
    assert bench.changes == []
    bench.now = Instant(since + s(1))
    bench.look({BROKER: stopped})
    assert [change for _, change in bench.changes] == [Hung(BROKER, "stopped")]
    assert bench.watch.deadline() is None


def starving(bench: Bench, duration: int, *, cpu_share: float, runnable: bool = True) -> None:
    """Silent, on a machine that gives it so much of a CPU."""
    heard, end, begin = bench.heard, bench.now + duration, bench.now
    while bench.now < end:
        bench.now = Instant(bench.now + LOOK_EVERY)
        used = int((bench.now - begin) * cpu_share)
        bench.look(
            {BROKER: Reading(1, stopped=False, heartbeat=heard, runnable=runnable, cpu_ns=used)}
        )


def test_a_process_that_gets_no_cpu_is_not_blamed() -> None:
    bench = Bench()
    bench.run(s(1), BROKER)
    starving(bench, s(30), cpu_share=0.02)
    assert bench.changes == []


def test_a_process_that_spins_and_does_not_beat_hangs() -> None:
    bench = Bench()
    bench.run(s(1), BROKER)
    starving(bench, s(6.5), cpu_share=0.3)
    assert [change for _, change in bench.changes] == [Hung(BROKER, "silent")]


def test_a_process_that_sleeps_and_does_not_beat_hangs() -> None:
    bench = Bench()
    bench.run(s(1), BROKER)
    starving(bench, s(6.5), cpu_share=0, runnable=False)
    assert [change for _, change in bench.changes] == [Hung(BROKER, "silent")]


def test_after_it_was_starved_a_process_has_its_whole_time_again() -> None:
    bench = Bench()
    bench.run(s(1), BROKER)
    starving(bench, s(20), cpu_share=0.02)
    starving(bench, s(5.5), cpu_share=0, runnable=False)
    assert bench.changes == []
    starving(bench, s(1), cpu_share=0, runnable=False)
    assert [change for _, change in bench.changes] == [Hung(BROKER, "silent")]


def test_a_process_that_sleeps_in_steps_hangs_though_it_is_seen_to_wake() -> None:
    """Only the looks that found it kept from running are taken off its silence."""
    bench = Bench()
    bench.run(s(1), BROKER)
    heard = bench.heard
    for number in range(40):
        bench.now = Instant(bench.now + LOOK_EVERY)
        wakes = number % 5 == 4
        bench.look({BROKER: Reading(1, stopped=False, heartbeat=heard, runnable=wakes)})
    ((after, change),) = bench.changes
    assert change == Hung(BROKER, "silent")
    assert s(1) + s(6) * 5 // 4 - LOOK_EVERY <= after <= s(1) + s(6) * 5 // 4 + LOOK_EVERY


def test_a_stopped_coordinator_is_not_waited_for_where_another_stands_by() -> None:
    bench = Bench()
    bench.look({COORDINATOR: Reading(1, stopped=False, heartbeat=bench.heard)})
    bench.look({COORDINATOR: Reading(1, stopped=True, heartbeat=bench.heard, replaceable=True)})
    assert bench.watch.deadline() == bench.now + ms(COORDINATOR_STOPPED_MS)
    bench.run(ms(500), COORDINATOR, stopped=True, replaceable=True)
    ((after, change),) = bench.changes
    assert change == Hung(COORDINATOR, "stopped")
    assert after <= ms(COORDINATOR_STOPPED_MS) + LOOK_EVERY


def test_a_silent_coordinator_has_its_time_though_another_stands_by() -> None:
    bench = Bench()
    bench.run(s(1), COORDINATOR, replaceable=True)
    bench.run(ms(1_750), COORDINATOR, beats=False, replaceable=True)
    assert bench.changes == []
    bench.run(s(1), COORDINATOR, beats=False, replaceable=True)
    assert [change for _, change in bench.changes] == [Hung(COORDINATOR, "silent")]
