"""Starts that cannot be, and requests that cannot be met: one sentence that says what to do."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import STAND_INS, Cluster
from tidelog.kernel.launch import supervisor_socket
from tidelog.tools.supervisor.folder import supervisor_in

pytestmark = pytest.mark.slow


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Cluster]:
    """Commands in a folder where nothing runs; nothing may run afterwards either."""
    cluster = Cluster(tmp_path, program=STAND_INS)
    yield cluster
    cluster.assert_nothing_is_left()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("shared"), program=STAND_INS) as running:
        running.done("wait", "ready")  # the transaction coordinator, too
        yield running


def sentence(cluster: Cluster, *words: str, code: int = 1) -> str:
    finished = cluster.command(*words)
    assert finished.code == code, finished
    assert finished.out == ""
    assert len(finished.err.splitlines()) == 1, finished.err
    return finished.err


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_a_port_in_use_is_named_with_its_user(idle: Cluster, detach: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        err = sentence(idle, "up", "--base-port", str(port), *detach)
    assert f"port {port} is in use by" in err
    assert "--base-port" in err


def test_a_second_up_says_that_the_cluster_runs(shared: Cluster) -> None:
    err = sentence(shared, "up", "--base-port", "0")
    assert f"cluster 'default' is already running (pid {shared.runs[-1].pid})" in err
    assert "tidelog down" in err
    err = sentence(shared, "up", "--base-port", "0", "--ephemeral", "--detach")
    assert "already running" in err


def test_a_folder_of_someone_else_is_left_alone(idle: Cluster) -> None:
    (idle.folder / "work").mkdir()
    (idle.folder / "work" / "report.txt").write_text("x")
    assert "not a tidelog data folder" in sentence(idle, "up", "--data", "work")
    assert len(list((idle.folder / "work").iterdir())) == 1


def test_garbage_in_place_of_the_folders_identity_is_told(idle: Cluster) -> None:
    (idle.folder / "data").mkdir()
    (idle.folder / "data" / "cluster.json").write_text("{")
    assert "cluster.json cannot be read" in sentence(idle, "up", "--data", "data")


def test_a_broker_that_cannot_start_ends_the_start_with_its_sentence(idle: Cluster) -> None:
    refusing = Cluster(idle.folder, program=STAND_INS, environment={"STAND_IN_BROKER": "refuses"})
    for detach in ([], ["--detach"]):
        err = sentence(refusing, "up", "--base-port", "0", "--brokers", "1", *detach)
        assert err.endswith("cannot start broker 0: the data is on strike: give it a day off\n")


def test_a_start_that_was_refused_has_let_go_of_the_folder_when_it_returns(idle: Cluster) -> None:
    refusing = Cluster(idle.folder, program=STAND_INS, environment={"STAND_IN_BROKER": "refuses"})
    for _ in range(3):
        sentence(refusing, "up", "--base-port", "0", "--brokers", "1", "--detach")
        assert supervisor_in(refusing.data) is None


def test_a_broker_that_has_ended_before_its_parent_looks_ends_the_start_too(idle: Cluster) -> None:
    late = {"STAND_IN_BROKER": "refuses", "STAND_IN_FORK": "late"}
    refusing = Cluster(idle.folder, program=STAND_INS, environment=late)
    err = sentence(refusing, "up", "--base-port", "0", "--brokers", "1", "--detach")
    assert err.endswith("cannot start broker 0: the data is on strike: give it a day off\n")


def test_a_process_that_dies_at_its_start_ends_the_start(idle: Cluster) -> None:
    dying = Cluster(idle.folder, program=STAND_INS, environment={"STAND_IN_COORDINATOR": "dies"})
    err = sentence(dying, "up", "--base-port", "0", "--detach")
    assert "cannot start coordinator: exit code 70, its last words: RuntimeError: a bug" in err
    assert "a bug of the stand-in" in dying.logs()


def test_fewer_brokers_than_the_data_has_are_refused(idle: Cluster) -> None:
    idle.done("up", "--detach", "--brokers", "2", "--base-port", "0")
    idle.done("down")
    assert "has 2 brokers, and their data" in sentence(idle, "up", "--brokers", "1")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--set", "num.partition=3"], "did you mean 'num.partitions'?"),
        (["--set", "num.partitions=zero"], "num.partitions='zero': must be"),
        (["--set", "nonsense"], "must be KEY=VALUE"),
        (["--config", "missing.toml"], "there is no such file"),
        (["--brokers", "0"], "--brokers"),
        (["--brokers", "65"], "--brokers"),
        (["--base-port", "65536"], "--base-port"),
        (["--cluster", "../x"], "--cluster '../x'"),
        (["--ephemeral", "--data", "x"], "leave --data out"),
        (["--detatch"], "--detach"),
    ],
)
def test_wrong_usage_is_told(idle: Cluster, words: list[str], part: str) -> None:
    assert part in sentence(idle, "up", *words, code=2)


@pytest.mark.parametrize(
    "words",
    [
        ["status"],
        ["broker", "kill", "0"],
        ["coordinator", "pause"],
        ["wait", "ready", "--timeout=0"],
    ],
)
def test_what_needs_a_running_cluster_says_so(idle: Cluster, words: list[str]) -> None:
    code = 4 if "wait" in words else 3  # it waited for one to be started
    assert "there is no cluster 'default'" in sentence(idle, *words, code=code)
    idle.done("up", "--detach", "--base-port", "0")
    idle.done("down")
    assert "is not running: start it with tidelog up" in sentence(idle, *words, code=4)


def test_down_of_what_does_not_run_is_done_and_of_what_is_not_there_not_found(
    idle: Cluster,
) -> None:
    assert "there is no cluster 'default'" in sentence(idle, "down", code=3)
    idle.done("up", "--detach", "--base-port", "0")
    idle.done("down")
    assert "was not running" in idle.done("down").err


def test_brokers_that_are_not_there_or_not_in_that_state_are_told(shared: Cluster) -> None:
    assert "there is no broker 7: the brokers are 0" in sentence(
        shared, "broker", "kill", "7", code=3
    )
    assert "broker 0 is already running (pid" in sentence(shared, "broker", "start", "0")
    shared.done("broker", "stop", "0")
    assert "start it with tidelog broker start 0" in sentence(shared, "broker", "pause", "0")
    assert "the cluster is not ready: broker 0 is stopped" in sentence(
        shared, "wait", "ready", "--timeout", "0.1", code=4
    )
    shared.done("broker", "start", "0")


def test_the_socket_answers_garbage_with_a_sentence_and_lives(shared: Cluster) -> None:
    path = supervisor_socket(shared.runs[-1].runtime_dir)
    for line in (
        b"garbage\n",
        b"[]\n",
        b"{}\n",
        b"\xff\xfe\n",
        b'{"do": ["x"]}\n',
        b"[" * 9999 + b"\n",
        b'{"do":"power-loss","ids":5}\n',
        b'{"do":"power-loss","ids":[]}\n',
        b'{"do":"power-loss","ids":["0"]}\n',
        b'{"do":"power-loss","all":1}\n',
        b'{"do":"down","force":"no"}\n',
        b'{"do":"wait","timeout_s":[]}\n',
        b'{"do":"kill","role":"broker","id":"0"}\n',
        b'{"do":"kill","role":"broker","id":true}\n',
        b'{"do":"kill","id":[]}\n',
    ):
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(path)
            stream.sendall(line)
            answer = json.loads(stream.makefile("rb").readline())
        assert answer["ok"] is False
        assert answer["code"] == 2, line
    for field in (b'{"do":"kill","role":"broker","id":-1}\n', b'{"do":"kill","role":[]}\n'):
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(path)
            stream.sendall(field)
            assert json.loads(stream.makefile("rb").readline())["code"] == 3
    assert shared.status()["state"] == "running"


def test_a_line_without_end_ends_only_its_connection(shared: Cluster) -> None:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(10)
        stream.connect(supervisor_socket(shared.runs[-1].runtime_dir))
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            stream.sendall(bytes(16 * 1024 * 1024))
    assert shared.status()["state"] == "running"


def test_more_connections_than_allowed_are_told_so(
    shared: Cluster,
) -> None:
    path = supervisor_socket(shared.runs[-1].runtime_dir)
    streams = [socket.socket(socket.AF_UNIX) for _ in range(70)]
    try:
        answers = []
        for stream in streams:
            stream.settimeout(10)
            stream.connect(path)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                stream.sendall(b'{"do":"status"}\n')
            answers.append(json.loads(stream.makefile("rb").readline()))
        refused = [answer["error"] for answer in answers if not answer["ok"]]
        assert refused == ["the supervisor has 64 connections already: try again in a moment"] * 6
        assert "64 connections already" in sentence(shared, "status", code=4)
    finally:
        for stream in streams:
            stream.close()
    shared.done("wait", "ready")


def test_a_supervisor_whose_connections_all_wait_is_ended_by_force(tmp_path: Path) -> None:
    with Cluster(tmp_path, program=STAND_INS) as cluster, contextlib.ExitStack() as streams:
        cluster.done("broker", "pause", "0")
        for _ in range(64):
            stream = streams.enter_context(socket.socket(socket.AF_UNIX))
            stream.connect(supervisor_socket(cluster.runs[-1].runtime_dir))
            stream.sendall(b'{"do":"wait","timeout_s":1000}\n')
        assert "or kill it with tidelog down --force" in sentence(cluster, "down", code=4)
        cluster.stop("--force")
        cluster.assert_nothing_is_left()


def test_a_thousand_requests_at_once_are_answered_one_by_one(shared: Cluster) -> None:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(20)
        stream.connect(supervisor_socket(shared.runs[-1].runtime_dir))
        stream.sendall(b"{}\n" * 1000)
        lines = stream.makefile("rb")
        assert not any(json.loads(lines.readline())["ok"] for _ in range(1000))
    assert shared.status()["state"] == "running"


def test_several_requests_on_one_connection_are_answered_in_order(shared: Cluster) -> None:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(supervisor_socket(shared.runs[-1].runtime_dir))
        stream.sendall(
            b'{"do":"pause","role":"broker"}\n{"do":"wait","timeout_s":0.05}\n'
            b'{"do":"resume","role":"broker"}\n{"do":"wait","timeout_s":5}\n'
        )
        lines = stream.makefile("rb")
        answers = [json.loads(lines.readline()) for _ in range(4)]
    assert [answer["ok"] for answer in answers] == [True, False, True, True]
    assert answers[1]["error"] == "the cluster is not ready: broker 0 is paused"
