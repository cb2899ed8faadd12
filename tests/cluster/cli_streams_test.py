"""What all commands do with their streams: readers that leave, full disks, colours, Ctrl-C, Tab."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster, until

pytestmark = pytest.mark.slow

MANY = 20_000


@pytest.fixture(scope="module")
def berth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with a log that no pipe holds."""
    with Cluster(tmp_path_factory.mktemp("berth")) as cluster:
        cluster.create_topic("boats")
        cluster.create_topic("barges")
        cluster.done("produce", "boats", text="x\n" * MANY)
        yield cluster


def shell(cluster: Cluster, line: str) -> subprocess.CompletedProcess[str]:
    """A line of bash in which `tidelog` is the command under test; its output is the test's."""
    program = " ".join([sys.executable, *cluster.program])
    return subprocess.run(
        ["bash", "-c", f'tidelog() {{ {program} "$@"; }}; {line}'],
        cwd=cluster.folder,
        env=cluster.variables(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


LONG = ["consume boats -o start:end", "log dump boats:0 --deep", "--help-json", "completion bash"]


@pytest.mark.parametrize("words", [*LONG, "log dump boats:0 --deep --json", "topic --help"])
def test_a_reader_that_leaves_ends_a_command_without_a_word(berth: Cluster, words: str) -> None:
    done = shell(berth, f"tidelog {words} | head -c 1 >/dev/null; exit ${{PIPESTATUS[0]}}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [*LONG, "status --json", "topic list"])
def test_a_full_disk_is_one_sentence(berth: Cluster, words: str) -> None:
    done = shell(berth, f"tidelog {words} > /dev/full")
    assert done.returncode == 1
    assert done.stderr == "error: no space left on device\n"


def test_nobody_reads_errors_either(berth: Cluster) -> None:
    done = shell(berth, "tidelog topic describe nets 2>/dev/full; echo $?")
    assert done.stdout == "3\n"


@pytest.mark.parametrize("words", ["topic list", "--help", "status --json"])
def test_a_closed_output_is_no_bug(berth: Cluster, words: str) -> None:
    done = shell(berth, f"tidelog {words} >&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["consume", "boats", "-o", "start"], ["logs", "--follow"]])
def test_ctrl_c_is_130_without_a_word_but_the_line_s_end(berth: Cluster, words: list[str]) -> None:
    with berth.open(*words) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 130
        assert errors.strip() == ""


@pytest.mark.parametrize(("variable", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_are_for_terminals_that_want_them(
    berth: Cluster, variable: dict[str, str], *, coloured: bool
) -> None:
    """A log with a warning in it, which is yellow."""
    logs = berth.data / "logs"
    (logs / "broker-9.log").write_text(
        '{"time":"2026-01-01T00:00:00.000","level":"warning","process":"broker-9","event":"leaked"}\n'
    )
    try:
        shown = on_terminal(berth, variable, "logs", "broker-9")
    finally:
        (logs / "broker-9.log").unlink()
    assert b"leaked" in shown
    assert (b"\x1b[33m" in shown) is coloured


def on_terminal(cluster: Cluster, variable: dict[str, str], *words: str) -> bytes:
    """What a terminal is sent."""
    ours, theirs = pty.openpty()
    environment = {k: v for k, v in cluster.variables().items() if k != "NO_COLOR"} | variable
    with subprocess.Popen(
        [sys.executable, *cluster.program, *words],
        cwd=cluster.folder,
        env=environment | {"TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:
                break
            if not part:
                break
            parts.append(part)
        process.wait(timeout=30)
    os.close(ours)
    return b"".join(parts)


def test_progress_is_shown_on_a_terminal_only(berth: Cluster) -> None:
    assert b"verifying" in on_terminal(berth, {}, "log", "verify")
    assert berth.done("log", "verify").err == ""
    (berth.folder / "lines").write_text("x\n" * MANY)
    from_a_file = ["produce", "barges", "--file", "lines"]
    assert b"writing" in on_terminal(berth, {}, *from_a_file)
    assert berth.done(*from_a_file).err == ""


def complete(cluster: Cluster, line: str) -> list[str]:
    """What bash offers at the end of a line."""
    words = line.split(" ")
    done = subprocess.run(
        [sys.executable, *cluster.program],
        cwd=cluster.folder,
        env=cluster.variables()
        | {
            "_TIDELOG_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return [row.partition(",")[2] for row in done.stdout.splitlines() if row]


def offers(cluster: Cluster, line: str, *names: str) -> bool:
    """On a busy machine a process is too old by its start alone to wait for a cluster, and offers
    nothing; it never offers anything else."""
    found = complete(cluster, line)
    assert found in ([], list(names)), found
    return found == list(names)


def test_topics_are_completed_from_the_live_cluster(berth: Cluster) -> None:
    def until_offered(line: str, *names: str) -> None:
        until(lambda: offers(berth, line, *names), line, 60)

    until_offered("tidelog topic describe ", "barges", "boats")
    until_offered("tidelog topic delete boats b", "barges")
    until_offered("tidelog consume bo", "boats")
    until_offered(f"tidelog topics describe -b {berth.bootstrap} ba", "barges")
    assert complete(berth, "tidelog topic describe --cluster other ") == []
    assert complete(berth, "tidelog topic describe --cluster d") == ["default"]
    assert complete(berth, "tidelog topic des") == ["describe"]


def test_an_address_that_never_answers_offers_nothing(berth: Cluster) -> None:
    assert complete(berth, "tidelog topic describe -b 10.255.255.1:9092 ") == []


def test_the_environment_names_a_cluster_and_a_flag_wins(berth: Cluster, tmp_path: Path) -> None:
    elsewhere = Cluster(
        tmp_path, environment={"TIDELOG_DATA": str(berth.data)}, program=berth.program
    )
    assert "boats" in elsewhere.done("topic", "list").out
    named = Cluster(tmp_path, environment={"TIDELOG_BOOTSTRAP": berth.bootstrap})
    assert "boats" in named.done("topic", "list").out
    assert named.command("topic", "list", "-b", "127.0.0.1:1").code == 4
    other = Cluster(tmp_path, environment={"TIDELOG_CLUSTER": "nowhere"})
    assert other.command("status").code == 3
    assert "'nowhere'" in other.command("status").err


HEAVY = re.compile(
    r"asyncio|concurrent|cramjam|numpy|posix_ipc|rich|subprocess|tomllib|uvloop|zmq"
    r"|tidelog\.coordinator(\..*)?|tidelog\.node\.(?!settings$|runtime$|runtime\.(?:lives|pid_namespaces)$).*"
)
"""What takes tens of milliseconds to import, and a quick question does not need. `runtime.lives`
and what it needs take less than one, and the packages around it have no code."""


@pytest.mark.parametrize("words", ["topic list", "status", "topic describe boats", "wait ready"])
def test_a_quick_question_imports_nothing_heavy(berth: Cluster, words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *berth.program, *words.split()],
        cwd=berth.folder,
        env=berth.variables(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    names = {line.rpartition("|")[2].strip() for line in lines}
    assert "tidelog.tools.cli" in names
    assert sorted(name for name in names if HEAVY.fullmatch(name)) == []
