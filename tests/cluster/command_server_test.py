"""A command that the command server runs is like one that a shell starts as a program."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from harness.disks.mounts import need_mounts, own_mounts
from harness.processes import commands
from harness.processes.cluster import Cluster, until
from harness.processes.command_server import Request
from harness.processes.commands import PROGRAMS, TIDELOG, VARIABLE, Finished
from harness.processes.golden import masked
from tidelog.tools.supervisor import proc

pytestmark = pytest.mark.slow

NOBODY = "127.0.0.1:1"
OWNER = """
import sys
from harness.processes import commands
from harness.processes.command_server import Request
commands.run(Request(["--version"], "/", commands.variables()))
print(commands.server().process.pid, commands.server().path, flush=True)
sys.stdin.read()
"""


def both(request: Request, text: str = "") -> tuple[Finished, Finished]:
    served = commands.run_served(request, text, 60)
    return shown(served), shown(commands.run_program(TIDELOG, request, text, 60))


def shown(finished: Finished) -> Finished:
    """Without the clusters that run elsewhere on this machine."""
    return replace(finished, err=masked(finished.err))


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        [],
        ["topic", "create", "--help"],
        ["topics", "lst"],
        ["topic", "list", "--bootstrap", NOBODY],
        ["status", "--cluster", "ebb-\N{LATIN SMALL LETTER E WITH ACUTE}"],
        ["produce", "tides", "--bootstrap", NOBODY, "--debug"],
        ["config", "show", "--origin"],
    ],
    ids=" ".join,
)
def test_it_says_the_same_and_has_the_same_exit_code(words: Sequence[str], tmp_path: Path) -> None:
    variables = commands.variables() | {"TIDELOG_NUM_PARTITIONS": "7", "COLUMNS": "60"}
    served, program = both(Request(words, str(tmp_path), variables))
    assert served == program


@pytest.mark.parametrize("line", ["tidelog --version", "tidelog topics lst", "tidelog status"])
def test_a_line_of_a_shell_says_the_same_and_has_the_same_exit_code(
    line: str, tmp_path: Path
) -> None:
    served, program = (
        in_a_shell(commands.words_of_shell(as_programs=one), line, tmp_path)
        for one in (False, True)
    )
    assert served == program


def in_a_shell(tidelog: str, line: str, folder: Path) -> Finished:
    """Both outputs go into one pipe."""
    done = subprocess.run(
        ["bash", "-c", f'tidelog() {{ {tidelog} "$@"; }}; {line} 2>&1 | cat; exit $PIPESTATUS'],
        cwd=folder,
        env=commands.variables(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return Finished(done.returncode, masked(done.stdout), done.stderr)


def test_a_start_that_python_itself_reads_variables_for_is_a_program(tmp_path: Path) -> None:
    ours = commands.variables()
    assert commands.can_be_served(Request(["status"], str(tmp_path), ours), "")
    for name in ("PYTHONIOENCODING", "LC_ALL", "PYTHONWARNINGS"):
        assert not commands.can_be_served(
            Request(["status"], str(tmp_path), ours | {name: "C"}), ""
        )


def test_a_command_is_a_program_where_the_test_has_changed_what_programs_inherit(
    tmp_path: Path,
) -> None:
    request = Request(["status"], str(tmp_path), commands.variables())
    assert commands.can_be_served(request, "")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert not commands.can_be_served(request, "")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_command_in_a_mount_namespace_of_the_test_is_a_program(tmp_path: Path) -> None:
    need_mounts()
    request = Request(["status"], str(tmp_path), commands.variables())
    with own_mounts():
        assert not commands.can_be_served(request, "")
    assert commands.can_be_served(request, "")


def test_a_command_that_becomes_another_program_is_never_served(tmp_path: Path) -> None:
    request = Request(["pipeline", "jars"], str(tmp_path), commands.variables())
    assert not commands.can_be_served(request, "")


def test_all_commands_are_programs_if_the_run_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(["status"], str(tmp_path), commands.variables())
    monkeypatch.setenv(VARIABLE, PROGRAMS)
    assert not commands.can_be_served(request, "")


def test_more_input_than_a_pipe_holds_arrives(cluster: Cluster) -> None:
    topic = cluster.create_topic()
    lines = "".join(f"{number:099}\n" for number in range(2_000))
    cluster.done("produce", topic, text=lines)
    assert cluster.done("consume", topic, "-o", "start:end").out == lines


def test_runs_of_the_same_command_take_turns_among_partitions(cluster: Cluster) -> None:
    """They do so by their pids: each command needs one of its own."""
    topic = cluster.create_topic(partitions=2)
    said = {cluster.done("produce", topic, text="record\n").out for _ in range(12)}
    assert any("partition 0" in one for one in said), said
    assert any("partition 1" in one for one in said), said


def test_commands_run_at_the_same_time(cluster: Cluster) -> None:
    names = [cluster.create_topic() for _ in range(4)]
    with ThreadPoolExecutor(len(names)) as pool:
        found = pool.map(lambda name: cluster.done("topic", "describe", name).out, names)
        for name, out in zip(names, found, strict=True):
            assert name in out


def test_a_command_over_its_time_is_killed(cluster: Cluster) -> None:
    topic = cluster.create_topic()
    before = cluster.pids()
    with pytest.raises(subprocess.TimeoutExpired):
        cluster.command("consume", topic, timeout_s=1)
    until(lambda: cluster.pids() == before, "the command is dead")


def test_a_command_is_found_by_the_mark_of_its_cluster_and_its_death_is_told(
    cluster: Cluster,
) -> None:
    topic = cluster.create_topic()
    before = {*cluster.pids()}
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(cluster.command, "consume", topic)
        until(lambda: len(cluster.pids()) > len(before), "the command runs")
        (pid,) = {*cluster.pids()} - before
        os.kill(pid, signal.SIGKILL)
        assert reading.result().code == -signal.SIGKILL


def test_nothing_is_left_of_a_server_whose_test_process_was_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER],
        env=commands.variables(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        pid, path = owner.stdout.readline().split()
        assert Path(path).exists()
        owner.kill()
    until(lambda: proc.is_gone(int(pid)), "the server has ended")
    assert not Path(path).parent.exists()
