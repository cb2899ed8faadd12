"""The supervisor's socket: who is served when many are connected, and what a bug does not end."""

import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.machines.desk import BROKERS, Office
from harness.processes.other_user import in_its_own_process
from tidelog.kernel.instant import Instant, s
from tidelog.tools.supervisor import plan, service
from tidelog.tools.supervisor.service import CONNECTIONS_MAX

STATUS = b'{"do":"status"}\n'
RUNS = {"ok": True, "status": {"state": "running"}}
FULL = {
    "ok": False,
    "error": "the supervisor has 64 connections already: try again in a moment",
    "code": 4,
}
ENDED = {"ended": True}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Office]]:
    made: list[Office] = []

    def build(is_child: Callable[[int], bool] = lambda _: False) -> Office:
        made.append(Office(tmp_path, is_child))
        return made[-1]

    yield build
    for office in made:
        office.close()


def asked(office: Office, *lines: bytes) -> list[dict[str, object]]:
    with office.connect() as stream:
        for line in lines:
            office.send(stream, line)
        return office.heard(stream)


def test_a_bug_in_a_request_is_answered_and_the_next_request_is_served(
    make: Callable[..., Office],
) -> None:
    office = make()
    office.desk.status_fails_with = KeyError("x")
    (answer,) = asked(office, STATUS)
    assert answer == {
        "ok": False,
        "error": "this is a bug: KeyError: 'x'; see tidelog logs supervisor",
        "code": 1,
    }
    office.desk.status_fails_with = None
    assert asked(office, STATUS) == [RUNS]


def test_a_bug_in_an_answer_that_is_given_later_ends_nothing(make: Callable[..., Office]) -> None:
    office = make()
    with office.connect() as stream:
        asked(office, b'{"do":"pause","role":"broker","id":1}\n')
        office.send(stream, b'{"do":"wait","timeout_s":1000}\n')
        assert office.heard(stream) == []
        office.desk.status_fails_with = RuntimeError("late")
        asked(office, b'{"do":"resume","role":"broker","id":1}\n')
        (answer,) = office.heard(stream)
        assert "this is a bug: RuntimeError: late" in str(answer["error"])
    assert asked(office, b'{"do":"watch"}\n') != []


def test_the_brokers_that_lose_power_are_counted_once_each(make: Callable[..., Office]) -> None:
    office = make()
    assert asked(office, b'{"do":"power-loss","ids":[1,2,1]}\n') == [{"ok": True}]
    assert office.desk.lost == [1, 2]


def test_a_broker_whose_death_is_not_noted_yet_is_started_once_it_is(
    make: Callable[..., Office],
) -> None:
    office = make()
    broker = BROKERS[1]
    office.desk.dying.add(broker)
    before = office.desk.plan.processes[broker].pid
    with office.connect() as stream:
        office.send(stream, b'{"do":"start","role":"broker","id":1}\n')
        assert office.heard(stream) == []
        office.desk.dying.discard(broker)
        office.desk.take(plan.Ended(broker, -signal.SIGKILL))
        office.answers.look()
        (answer,) = office.heard(stream)
    assert answer == {"ok": True, "pid": office.desk.plan.processes[broker].pid}
    assert answer["pid"] != before


def test_a_broker_whose_death_is_not_noted_yet_is_not_said_to_run(
    make: Callable[..., Office],
) -> None:
    office = make()
    office.desk.dying.add(BROKERS[1])
    (answer,) = asked(office, b'{"do":"remove","role":"broker","id":1}\n')
    assert answer["error"] == "broker 1 is ending: try again in a moment"


def test_many_requests_in_one_piece_are_all_answered_in_order(make: Callable[..., Office]) -> None:
    office = make()
    assert asked(office, STATUS * 3_000) == [RUNS] * 3_000


def test_one_peer_with_many_requests_does_not_keep_others_waiting(
    make: Callable[..., Office],
) -> None:
    office = make()
    with office.connect() as eager, office.connect() as other:
        office.turn()
        eager.send(STATUS * 500)
        other.send(b'{"do":"watch"}\n')
        office.turn()
    assert office.desk.asked.index("watch") <= service.LINES_PER_TURN_MAX
    assert office.desk.asked.count("status") == 500


def test_a_new_connection_is_told_that_there_is_no_room(make: Callable[..., Office]) -> None:
    office = make()
    streams = [office.connect() for _ in range(CONNECTIONS_MAX // 2)]
    office.turn()
    streams += [office.connect() for _ in range(CONNECTIONS_MAX // 2)]
    office.turn()
    assert asked(office) == [FULL, ENDED]
    streams.pop().close()
    assert asked(office, STATUS) == [RUNS]


def test_the_connection_that_is_idle_longest_makes_room(make: Callable[..., Office]) -> None:
    office = make()
    streams = []
    for _ in range(CONNECTIONS_MAX):
        streams.append(office.connect())
        office.turn()
        office.desk.time = Instant(office.desk.time + s(1))
    watches, half, waits, first, second, *_ = streams
    office.send(watches, b'{"do":"watch"}\n')
    assert len(office.heard(watches)) == 5
    office.send(half, b'{"do":"stat')  # half a line is no question
    assert asked(office, b'{"do":"pause","role":"broker","id":1}\n')[0]["ok"]
    assert office.heard(half) == [ENDED]
    office.desk.time = Instant(office.desk.time + s(1))
    office.send(waits, b'{"do":"wait","timeout_s":1000}\n')
    streams.append(office.connect())
    office.turn()
    assert asked(office, STATUS) == [RUNS]
    assert office.heard(first) == [ENDED]
    assert office.heard(second) == office.heard(watches) == office.heard(waits) == []


def test_the_clusters_own_processes_have_places_of_their_own(
    make: Callable[..., Office],
) -> None:
    children: set[int] = set()
    office = make(children.__contains__)
    streams = [office.connect() for _ in range(CONNECTIONS_MAX // 2)]
    office.turn()
    streams += [office.connect() for _ in range(CONNECTIONS_MAX // 2)]
    office.turn()
    assert asked(office) == [FULL, ENDED]
    children.add(os.getpid())
    assert len(asked(office, b'{"do":"watch"}\n')) == 5


def test_a_peer_that_there_is_no_descriptor_for_is_accepted_later(
    make: Callable[..., Office],
) -> None:
    def act() -> object:
        office = make()
        stream = office.connect()
        unlimited = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (stream.fileno() + 1, unlimited[1]))
        office.turn()  # until nothing is left to do
        resource.setrlimit(resource.RLIMIT_NOFILE, unlimited)
        office.desk.time = Instant(office.desk.time + s(1))
        office.send(stream, STATUS)
        return office.heard(stream)

    assert in_its_own_process(act) == repr([RUNS])
