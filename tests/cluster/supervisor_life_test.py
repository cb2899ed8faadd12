"""The life of a cluster's processes, tried with stand-ins: starts, deaths, pauses, the end."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import STAND_INS, Cluster, open_files, until
from tidelog.node.ipc.board import memory_of_run
from tidelog.tools.supervisor import proc
from tidelog.tools.supervisor.ask import Link

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=2, program=STAND_INS) as running:
        running.done("wait", "ready")  # the transaction coordinator, too
        yield running


def state(cluster: Cluster, role: str, process_id: int = 0) -> str:
    return str(cluster.process(role, process_id)["state"])


def port_of(cluster: Cluster, broker: int) -> int:
    return int(cluster.process("broker", broker)["port"])


def test_everything_runs_when_up_returns_and_nothing_is_left_when_down_does(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path, brokers=3, program=STAND_INS) as cluster:
        cluster.done("wait", "ready")  # the transaction coordinator, too
        status = cluster.status()
        assert status["state"] == "running"
        assert {row["state"] for row in status["processes"]} == {"running"}
        for broker in range(3):
            socket.create_connection(("127.0.0.1", port_of(cluster, broker))).close()
        cluster.stop()
        assert cluster.pids() == []
        cluster.assert_nothing_is_left()


def test_what_processes_publish_is_in_the_status(cluster: Cluster) -> None:
    status = cluster.status()
    assert (status["topics"], status["partitions"]) == (2, 6)
    assert status["controller"]["id"] == 3000
    assert status["controller"]["pid"] == cluster.process("coordinator")["pid"]
    row = cluster.process("broker", 1)
    assert (row["leaders"], row["replicas"], row["flush_policy"]) == (2, 3, "os")
    assert row["pss_bytes"] > 0


def test_the_supervisor_has_one_thread_and_no_event_descriptor(cluster: Cluster) -> None:
    pid = cluster.process("supervisor")["pid"]
    assert len(list(Path(f"/proc/{pid}/task").iterdir())) == 1
    links = open_files(pid)
    assert not [link for link in links if "eventfd" in link]
    assert len([link for link in links if "eventpoll" in link]) == 1


def test_a_child_has_none_of_the_supervisors_descriptors(cluster: Cluster) -> None:
    supervisor, child = cluster.process("supervisor")["pid"], cluster.broker_pid(1)
    kinds = ("socket:", "pipe:", "anon_inode")
    both = {*open_files(supervisor)} & {*open_files(child)}
    shared = {link for link in both if link.startswith(kinds)}
    assert shared == set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_foreground_cluster_in_order(tmp_path: Path, number: int) -> None:
    cluster = Cluster(tmp_path, brokers=2, program=STAND_INS)
    with cluster.open("up", "--brokers", "2", "--base-port", "0") as up:
        cluster.done("wait", "ready")
        up.send_signal(number)
        out, err = up.communicate(timeout=20)
    assert up.returncode == 0, err
    assert "bootstrap: 127.0.0.1:" in out
    assert "stopping" in err
    ended = [line for line in cluster.logs().splitlines() if "process_stopped" in line]
    assert len(ended) == 4
    assert '"of": "coordinator"' in ended[-1]
    cluster.assert_nothing_is_left()


def test_ctrl_c_reaches_the_whole_group_and_ends_it_in_order_all_the_same(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, brokers=2, program=STAND_INS)
    with cluster.open("up", "--brokers", "2", "--base-port", "0") as up:
        cluster.done("wait", "ready")
        for pid in [*(pid for pid in cluster.pids() if pid != up.pid), up.pid]:
            os.kill(pid, signal.SIGINT)  # the supervisor last: it ends the others
        up.communicate(timeout=20)
    assert up.returncode == 0
    ended = [line for line in cluster.logs().splitlines() if "process_stopped" in line]
    assert len(ended) == 4, cluster.logs()  # none died of the signal meant for all
    assert '"of": "coordinator"' in ended[-1]
    cluster.assert_nothing_is_left()


def test_the_death_of_the_supervisor_ends_everything_and_leaves_no_memory(
    cluster: Cluster,
) -> None:
    run = cluster.runs[-1]
    os.kill(run.pid, signal.SIGKILL)
    until(lambda: not cluster.pids(), "the children have followed")
    assert memory_of_run(run.run_id) == []
    assert not Path(run.runtime_dir).exists()
    cluster.start()
    assert cluster.status()["state"] == "running"


def test_the_death_of_the_supervisor_ends_a_paused_broker_too(cluster: Cluster) -> None:
    cluster.done("broker", "pause", "1")
    os.kill(cluster.runs[-1].pid, signal.SIGKILL)
    until(lambda: not cluster.pids(), "the children have followed")
    assert "stand_in_ended" in (cluster.data / "logs/broker-1.log").read_text()
    assert memory_of_run(cluster.runs[-1].run_id) == []
    cluster.start()


def test_what_a_run_killed_at_one_moment_left_is_removed_by_the_next_start(
    cluster: Cluster,
) -> None:
    run = cluster.runs[-1]
    cluster.kill_everything()
    assert memory_of_run(run.run_id) != []
    cluster.start()
    assert memory_of_run(run.run_id) == []
    assert not Path(run.runtime_dir).exists()


def test_a_killed_broker_stays_down_and_comes_back_on_its_port_when_started(
    cluster: Cluster,
) -> None:
    port, pid = port_of(cluster, 1), cluster.broker_pid(1)
    cluster.done("broker", "kill", "1")
    assert state(cluster, "broker", 1) == "killed"
    assert proc.is_gone(pid)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    cluster.done("broker", "start", "1")
    assert state(cluster, "broker", 1) == "running"
    assert port_of(cluster, 1) == port
    socket.create_connection(("127.0.0.1", port)).close()
    assert cluster.broker_pid(1) != pid


def test_an_added_broker_stays_with_the_cluster_on_its_port(cluster: Cluster) -> None:
    added = cluster.done("broker", "add")
    assert added.out.startswith("broker 2 added (pid ")
    assert "internal topics may have fewer replicas" in added.err, "no stand-in tells of topics"
    assert "no broker answers" in added.err
    port = port_of(cluster, 2)
    socket.create_connection(("127.0.0.1", port)).close()
    assert cluster.status()["bootstrap"].endswith(f",127.0.0.1:{port}")
    assert cluster.done("wait", "ready").out.endswith(f",127.0.0.1:{port}\n")
    cluster.stop()
    cluster.brokers = 3
    cluster.start()
    assert port_of(cluster, 2) == port
    assert state(cluster, "broker", 2) == "running"


def test_a_broker_is_not_added_where_its_port_is_taken_and_is_once_it_is_free(
    tmp_path: Path,
) -> None:
    with socket.socket() as first, socket.socket() as second:
        base = two_ports(first, second)
        first.close()
        with Cluster(tmp_path, program=STAND_INS, options=["--base-port", str(base)]) as cluster:
            refused = cluster.command("broker", "add")
            assert refused.code == 1
            assert f"no broker can be added: port {base + 1} is in use" in refused.err
            assert len(cluster.status()["processes"]) == 4
            second.close()
            cluster.done("broker", "add")
            assert port_of(cluster, 1) == base + 1


def test_a_start_tells_who_took_the_port_that_a_broker_had_before(tmp_path: Path) -> None:
    with Cluster(tmp_path, program=STAND_INS) as cluster:
        port = port_of(cluster, 0)
        cluster.stop()
        with socket.create_server(("127.0.0.1", port)):
            err = cluster.done("up", "--detach").err
        assert f"port {port}, which a broker had before, is in use by " in err
        assert f"(pid {os.getpid()}): the broker gets port {port_of(cluster, 0)}" in err
        assert port_of(cluster, 0) != port
        cluster.done("down")


def two_ports(first: socket.socket, second: socket.socket) -> int:
    """Bind two that follow each other; the lower one."""
    for port in range(4_000, 9_000, 2):  # clusters on free ports have others
        try:
            first.bind(("127.0.0.1", port))
        except OSError:
            continue
        second.bind(("127.0.0.1", port + 1))
        second.listen()
        return port
    raise AssertionError("no free ports")


def test_a_broker_that_crashes_comes_back_where_that_was_asked_for(tmp_path: Path) -> None:
    with Cluster(tmp_path, program=STAND_INS, options=["--restart"]) as cluster:
        pid = cluster.broker_pid(0)
        cluster.done("broker", "kill", "0")
        cluster.done("wait", "ready")
        assert cluster.broker_pid(0) != pid


def test_incarnations_never_repeat_in_a_folder(cluster: Cluster) -> None:
    def incarnations() -> list[int]:
        lines = [line for line in cluster.logs().splitlines() if "process_started" in line]
        return [int(line.split('"incarnation": ')[1].rstrip("}")) for line in lines]

    cluster.done("broker", "kill", "1")
    cluster.done("broker", "start", "1")
    cluster.kill_everything()
    cluster.start()
    cluster.done("wait", "ready")
    cluster.stop()
    seen = incarnations()
    assert len(seen) == 9
    assert seen == sorted(set(seen))


def test_a_killed_coordinator_is_started_again(cluster: Cluster) -> None:
    pid, epoch = cluster.process("coordinator")["pid"], cluster.status()["controller"]["epoch"]
    cluster.done("coordinator", "kill")
    cluster.done("wait", "ready")
    assert cluster.process("coordinator")["pid"] != pid
    assert cluster.status()["controller"]["epoch"] > epoch


def test_a_killed_or_paused_transaction_coordinator_is_started_again(cluster: Cluster) -> None:
    pids = [cluster.process("transaction-coordinator")["pid"]]
    for what in ("kill", "pause"):
        cluster.done("txn-coordinator", what)
        until(
            lambda: cluster.process("transaction-coordinator")["pid"] not in {None, *pids},
            "a new transaction coordinator",
        )
        cluster.done("wait", "ready")
        pids.append(cluster.process("transaction-coordinator")["pid"])


def test_a_transaction_coordinator_that_cannot_start_holds_nothing_up(tmp_path: Path) -> None:
    refusing = {"STAND_IN_TRANSACTIONS": "refuses"}
    with Cluster(tmp_path, program=STAND_INS, environment=refusing) as cluster:
        until(lambda: "on strike" in cluster.logs(), "it has said why")
        assert cluster.status()["state"] == "running"
        late = cluster.command("wait", "ready", "--timeout", "0.05")
        assert "transaction-coordinator is starting" in late.err


def test_a_transaction_coordinator_that_is_stopped_while_it_starts_is_replaced(
    tmp_path: Path,
) -> None:
    """Nobody was told yet that it is ready, and nobody else would look at it."""
    with Cluster(
        tmp_path, program=STAND_INS, environment={"STAND_IN_TRANSACTIONS": "stops"}
    ) as one:
        first = one.process("transaction-coordinator")["pid"]
        until(lambda: "process_hung" in one.logs(), "it is found")
        until(
            lambda: one.process("transaction-coordinator")["pid"] not in {None, first}, "the next"
        )


def test_states_come_from_the_kernel_not_from_commands(cluster: Cluster) -> None:
    pid = cluster.broker_pid(0)
    os.kill(pid, signal.SIGSTOP)
    until(lambda: state(cluster, "broker") == "paused", "the stop is seen")
    os.kill(pid, signal.SIGCONT)
    until(lambda: state(cluster, "broker") == "running", "the broker is seen to go on")
    os.kill(pid, signal.SIGKILL)
    until(lambda: state(cluster, "broker") == "killed", "the death is seen")


def test_a_paused_broker_can_be_resumed_or_stopped(cluster: Cluster) -> None:
    cluster.done("broker", "pause", "0", "1")
    assert (state(cluster, "broker", 0), state(cluster, "broker", 1)) == ("paused", "paused")
    cluster.done("broker", "resume", "0")
    assert state(cluster, "broker", 0) == "running"
    cluster.done("broker", "stop", "1")
    assert state(cluster, "broker", 1) == "stopped"
    cluster.done("broker", "restart", "0", "1")
    assert (state(cluster, "broker", 0), state(cluster, "broker", 1)) == ("running", "running")


def test_a_paused_coordinator_is_killed_and_started_again(cluster: Cluster) -> None:
    pid = cluster.process("coordinator")["pid"]
    cluster.done("coordinator", "pause")
    until(lambda: cluster.process("coordinator")["pid"] not in {pid, None}, "a new coordinator")
    cluster.done("wait", "ready")


def test_watchers_hear_what_is_and_then_what_happens(cluster: Cluster) -> None:
    with Link.to(cluster.data) as link:
        link.watch()
        now = [link.read() for _ in range(4)]
        assert {(event["event"], event["role"], event["id"]) for event in now} == {
            ("started", "coordinator", 0),
            ("started", "broker", 0),
            ("started", "broker", 1),
            ("started", "transaction-coordinator", 0),
        }
        cluster.done("broker", "pause", "1")
        assert link.read()["event"] == "hung"
        cluster.done("broker", "resume", "1")
        assert link.read()["event"] == "resumed"
        cluster.done("broker", "kill", "1")
        died = link.read()
        assert (died["event"], died["role"], died["id"]) == ("died", "broker", 1)
        cluster.done("broker", "start", "1")
        started = link.read()
        assert started["event"] == "started"
        assert started["incarnation"] > died["incarnation"]
        cluster.done("broker", "stop", "1")
        assert link.read()["event"] == "stopped"


def test_what_ignores_its_signal_is_killed_by_force(tmp_path: Path) -> None:
    ignoring = {"STAND_IN_BROKER": "ignores"}
    with Cluster(tmp_path, program=STAND_INS, environment=ignoring) as cluster:
        cluster.stop("--force")
        cluster.assert_nothing_is_left()


def test_a_second_ctrl_c_kills_what_does_not_end(tmp_path: Path) -> None:
    ignoring = {"STAND_IN_BROKER": "ignores"}
    cluster = Cluster(tmp_path, program=STAND_INS, environment=ignoring)
    with cluster.open("up", "--base-port", "0") as up:
        cluster.done("wait", "ready")
        up.send_signal(signal.SIGINT)
        until(lambda: "signal_received" in cluster.logs(), "the first is noticed")
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=20)
    cluster.assert_nothing_is_left()


def test_ports_are_the_same_after_down_and_up(cluster: Cluster) -> None:
    before = cluster.bootstrap
    cluster.stop()
    cluster.start()
    assert cluster.bootstrap == before


def test_an_ephemeral_cluster_is_found_by_name_and_leaves_no_folder(tmp_path: Path) -> None:
    with Cluster(tmp_path, program=STAND_INS, options=["--ephemeral"]) as cluster:
        data = cluster.data
        assert data.is_dir()
        assert not data.is_relative_to(tmp_path)
        assert cluster.status()["data"] == str(data)
        cluster.stop()
        assert not data.exists()
        assert list(tmp_path.iterdir()) == []


def test_two_clusters_live_side_by_side(cluster: Cluster) -> None:
    other = ["--cluster", "other"]
    cluster.done("up", "--detach", "--base-port", "0", *other)
    first, second = cluster.status(), cluster.done("status", "--json", *other).document
    assert first["cluster_id"] != second["cluster_id"]
    cluster.done("down", *other)
    assert cluster.status()["state"] == "running"
