"""The cluster commands as a person and a script see them: texts, JSON, exit codes, wrong use."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import STAND_INS, Cluster
from harness.processes.golden import Golden, told

pytestmark = pytest.mark.slow


@pytest.fixture
def idle(tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, program=STAND_INS)
    yield cluster
    if cluster.pids():
        cluster.stop("--force")
    cluster.assert_nothing_is_left()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=2, program=STAND_INS) as cluster:
        cluster.done("wait", "ready")  # the transaction coordinator, too
        yield cluster


def test_up(idle: Cluster, golden: Golden) -> None:
    text = told(
        idle,
        ["up", "--detach", "--brokers", "2", "--base-port", "0", "--set", "num.partitions=3"],
        ["up", "--detach", "--base-port", "0"],
        ["down"],
        ["up", "--detach", "--json"],
        ["down"],
        ["up", "--set", "num.partition=3"],
        ["up", "--set", "num.partitions=0"],
        ["up", "--set", "num.partitions"],
        ["up", "--brokers", "none"],
        ["up", "--disks", "loop"],
        ["up", "--disks", "floppy"],
        ["up", "--disks", "loop:1MiB"],
        ["up", "now"],
        ["up", "--daemon"],
    )
    golden("cli_cluster_up", text)


def test_down(running: Cluster, golden: Golden) -> None:
    text = told(
        running,
        ["down", "--sync"],
        ["down"],
        ["down", "--json"],
        ["down", "--cluster", "other"],
        ["down", "--now"],
    )
    golden("cli_cluster_down", text)


def test_status(running: Cluster, golden: Golden) -> None:
    running.done("broker", "kill", "1")
    text = told(
        running,
        ["status"],
        ["status", "--json"],
        ["status", "--cluster", "other"],
        ["status", "--cluster", "no/name"],
        ["status", "everything"],
    )
    golden("cli_cluster_status", text)


def test_broker(running: Cluster, golden: Golden) -> None:
    text = told(
        running,
        ["broker", "pause", "0", "1"],
        ["broker", "resume", "0", "1"],
        ["broker", "pause", "0", "--json"],
        ["broker", "resume", "0", "--json"],
        ["broker", "kill", "1"],
        ["broker", "start", "1"],
        ["broker", "start", "1"],
        ["broker", "kill", "1", "--json"],
        ["broker", "start", "1", "--json"],
        ["broker", "stop", "1", "--json"],
        ["broker", "stop", "1"],
        ["broker", "restart", "0"],
        ["broker", "restart", "0", "1", "--json"],
        ["broker", "stop", "0"],
        ["broker", "kill", "1", "9", "--json"],
        ["brokers", "kill", "9"],
        ["broker", "kill"],
        ["broker", "kill", "zero"],
        ["broker", "kil", "0"],
        ["broker"],
    )
    golden("cli_cluster_broker", text)


def test_broker_add(tmp_path: Path, golden: Golden) -> None:
    with Cluster(tmp_path, brokers=2) as real:  # they ask Kafka's way what must move
        text = told(
            real,
            ["broker", "add"],
            ["broker", "add", "--json"],
            ["broker", "kill", "3"],
            ["broker", "start", "3"],
            ["broker", "add", "4"],
            ["broker", "remove", "3"],
            ["broker", "remove", "3"],
            ["broker", "remove", "2", "--json"],
            ["broker", "remove"],
            ["broker", "restart"],
            ["broker", "restart", "--rolling", "0"],
        )
    golden("cli_cluster_broker_add", text)


def test_coordinator(running: Cluster, golden: Golden) -> None:
    text = told(
        running,
        ["coordinator", "pause"],
        ["coordinator", "resume", "--json"],
        ["coordinator", "pause", "--json"],
        ["coordinator", "resume"],
        ["coordinator", "kill"],
        ["wait", "ready"],
        ["coordinator", "kill", "--json"],
        ["wait", "ready"],
        ["coordinator", "stop"],
        ["coordinator", "kill", "0"],
    )
    golden("cli_cluster_coordinator", text)


def test_txn_coordinator(running: Cluster, golden: Golden) -> None:
    text = told(
        running,
        ["txn-coordinator", "pause"],
        ["txn-coordinator", "resume", "--json"],
        ["txn-coordinator", "pause", "--json"],
        ["txn-coordinator", "resume"],
        ["txn-coordinator", "kill"],
        ["wait", "ready"],
        ["txn-coordinator", "kill", "--json"],
        ["wait", "ready"],
        ["txn-coordinator", "stop"],
        ["logs", "transaction-coordinator", "-n", "1", "--json"],
    )
    golden("cli_cluster_txn_coordinator", text)


def test_wait(running: Cluster, golden: Golden) -> None:
    ready = told(running, ["wait", "ready"], ["wait", "ready", "--json"])
    running.done("broker", "kill", "0")
    text = told(
        running,
        ["wait", "ready", "--timeout", "0.05"],
        ["wait", "ready", "--cluster", "other", "--timeout", "0.05"],
        ["wait", "ready", "--timeout", "soon"],
        ["wait", "readyy"],
    )
    golden("cli_cluster_wait", ready + text)


def test_logs(running: Cluster, golden: Golden) -> None:
    running.done("down")
    text = told(
        running,
        ["logs", "broker-0"],
        ["logs", "1"],
        ["logs", "coordinator", "--json"],
        ["logs", "supervisor", "-n", "1"],
        ["logs", "broker-7"],
        ["logs", "--cluster", "other"],
        ["logs", "--lines", "few"],
    )
    golden("cli_cluster_logs", text)


def test_logs_are_merged_by_time_and_followed_to_the_end(running: Cluster) -> None:
    with running.open("logs", "--follow", "--json") as following:
        assert following.stdout is not None
        assert following.stderr is not None
        first = following.stdout.readline()
        running.done("down")
        # Not `communicate`: it would pass over what `readline` has already taken in.
        out, err = following.stdout.read(), following.stderr.read()
        following.wait(timeout=20)
    assert (following.returncode, err) == (0, "")
    events = [json.loads(line) for line in [first, *out.splitlines()]]
    assert {event["process"] for event in events} == {
        "supervisor-0",
        "coordinator-0",
        "broker-0",
        "broker-1",
        "transaction-coordinator-0",
    }
    ready = next(n for n, event in enumerate(events) if event["event"] == "cluster_ready")
    times = [event["time"] for event in events[: ready + 1]]
    assert times == sorted(times)
    assert "supervisor_ended" in [event["event"] for event in events]


def test_a_strangers_bytes_in_a_log_do_not_reach_the_terminal(running: Cluster) -> None:
    with (running.data / "logs" / "broker-0.log").open("ab") as file:
        file.write(b"\x1b[2J raw output\n")
    out = running.done("logs").out
    assert "\\x1b[2J raw output" in out
    assert "\x1b" not in out


def test_completion(idle: Cluster, golden: Golden) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_TIDELOG_COMPLETE" in idle.done("completion", shell).out
    text = told(idle, ["completion", "powershell"], ["completion"])
    golden("cli_cluster_completion", text)


def test_a_shell_completes_commands_and_options(idle: Cluster) -> None:
    asking = Cluster(
        idle.folder,
        environment={
            "_TIDELOG_COMPLETE": "bash_complete",
            "COMP_WORDS": "tidelog broker ki",
            "COMP_CWORD": "2",
        },
    )
    assert "kill" in asking.command().out


def test_the_whole(idle: Cluster, golden: Golden) -> None:
    text = told(
        idle,
        [],
        ["--help"],
        ["up", "--help"],
        ["broker", "--help"],
        ["broker", "kill", "--help"],
        ["statos"],
        ["--verbose"],
        ["--cluster", "other", "status"],
    )
    golden("cli_cluster_help", text)


def test_the_tree_of_commands_is_described_for_machines(idle: Cluster) -> None:
    tree = idle.done("--help-json").document
    names = {command["name"]: command for command in tree["commands"]}
    assert {"up", "down", "status", "broker", "logs", "wait", "completion"} <= set(names)
    assert {child["name"] for child in names["broker"]["commands"]} == {
        "add",
        "remove",
        "start",
        "stop",
        "restart",
        "kill",
        "pause",
        "resume",
    }
    assert all(command["examples"] for command in names.values())


def test_the_version_is_told(idle: Cluster) -> None:
    assert idle.done("--version").out.startswith("tidelog ")


def test_debug_shows_where_an_error_came_from(idle: Cluster) -> None:
    assert "Traceback" in idle.command("status", "--debug").err
    assert "Traceback" not in idle.command("status").err
