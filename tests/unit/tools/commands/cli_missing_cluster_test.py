"""Commands without their cluster: one fact has one exit code, and it is said where to look."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from harness.processes.command_tree import leaves
from harness.processes.lonely import started, stopped
from tidelog.tools import cli
from tidelog.tools.supervisor import registry

NEEDS_NONE = frozenset(
    {
        ("up",),
        ("cluster", "list"),
        ("config", "show"),
        ("pipeline", "jars"),
        ("pipeline", "package"),
        ("completion",),
    }
)
READS_FILES = frozenset({("logs",), ("log", "verify"), ("disk",), ("metrics",), ("down",)})
"""What has something to say of a stopped cluster: it ends with 0."""
KNOWS_FILES = frozenset(
    {
        ("log", "dump"),
        ("timeline",),
        ("why", "broker"),
        ("why", "partition"),
        ("cluster", "delete"),
        ("chaos", "corrupt"),
        ("pipeline", "asof"),
        ("pipeline", "compaction"),
        ("pipeline", "export"),
        ("pipeline", "verify"),
    }
)
"""The same; here it ends otherwise, for what the table asks about is not in the files."""
WAITS = frozenset({("wait", "ready")})
"""A cluster may still come: the time is up, which is 4 whatever the reason."""
ARGUMENTS: dict[tuple[str, ...], Sequence[str]] = {
    ("broker", "kill"): ["0"],
    ("broker", "pause"): ["0"],
    ("broker", "remove"): ["0"],
    ("broker", "restart"): ["0"],
    ("broker", "resume"): ["0"],
    ("broker", "start"): ["0"],
    ("broker", "stop"): ["0"],
    ("wait", "isr"): ["t"],
    ("wait", "ready"): ["--timeout", "0"],
    ("wait", "stable"): ["g"],
    ("topic", "alter"): ["t", "-p", "3"],
    ("topic", "create"): ["t"],
    ("topic", "delete"): ["t", "--yes"],
    ("topic", "delete-records"): ["t", "--partition", "0", "--before-offset", "1", "--yes"],
    ("topic", "describe"): ["t"],
    ("topic", "empty"): ["t", "--yes"],
    ("topic", "offsets"): ["t"],
    ("partition", "reassign", "apply"): ["plan.json"],
    ("partition", "reassign", "cancel"): ["t:0"],
    ("partition", "reassign", "plan"): ["--brokers", "0", "--topics", "t"],
    ("group", "delete"): ["g", "--yes"],
    ("group", "describe"): ["g"],
    ("group", "reset-offsets"): ["g", "--all-topics", "--to-latest"],
    ("txn", "abort"): ["i", "--yes"],
    ("txn", "describe"): ["i"],
    ("config", "describe"): ["topic", "t"],
    ("config", "set"): ["topic", "t", "retention.ms=1"],
    ("config", "unset"): ["topic", "t", "retention.ms"],
    ("produce",): ["t"],
    ("consume",): ["t"],
    ("cluster", "delete"): ["default", "--yes"],
    ("log", "dump"): ["t:0"],
    ("chaos", "corrupt"): ["t:0"],
    ("chaos", "full-disk"): ["0"],
    ("chaos", "io-error"): ["0", "--on", "fsync"],
    ("chaos", "power-loss"): ["--all"],
    ("chaos", "slow-disk"): ["0", "--delay", "10ms"],
    ("why", "broker"): ["0"],
    ("why", "group"): ["g"],
    ("why", "partition"): ["t:0"],
    ("why", "txn"): ["i"],
    ("timeline",): ["t:0"],
    ("pipeline", "asof"): ["--topic", "t"],
    ("pipeline", "compaction"): ["--topic", "t"],
    ("pipeline", "export"): ["--topics", "t", "--dest", "d"],
    ("pipeline", "lag"): ["--groups", "g"],
    ("pipeline", "mirror"): ["--to", "h:1", "--topics", "t", "--checkpoint", "c"],
    ("pipeline", "produce"): ["--topic", "t"],
    ("pipeline", "replay"): ["--source", "s"],
    ("pipeline", "verify"): ["--history", "h"],
}
NEEDING = sorted(leaves(cli.cli).keys() - NEEDS_NONE)


@pytest.mark.parametrize("path", NEEDING, ids=" ".join)
def test_where_no_cluster_is_every_command_says_so_and_ends_with_3(
    path: tuple[str, ...], alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = cli.run([*path, *ARGUMENTS.get(path, [])])
    err = capsys.readouterr().err
    assert f"there is no cluster 'default' in {alone}/.tidelog/default: name one" in err
    assert code == (4 if path in WAITS else 3)
    assert not (alone / ".tidelog").exists()


@pytest.mark.parametrize("path", NEEDING, ids=" ".join)
def test_where_the_cluster_is_stopped_every_command_that_needs_it_ends_with_4(
    path: tuple[str, ...], alone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = stopped(alone)
    if path in KNOWS_FILES:
        return
    code = cli.run([*path, *ARGUMENTS.get(path, [])])
    err = capsys.readouterr().err
    if path in READS_FILES:
        assert code == 0
        return
    assert code == 4
    assert f"cluster 'default' in {data} is not running: start it with tidelog up" in err


def test_the_sentence_names_what_runs_elsewhere(
    alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = started(tmp_path / "base", stopped(tmp_path / "other"))
    named = f"running elsewhere: 'default' in {run.data_dir} (pid {os.getpid()})\n"
    for _ in range(2):
        assert cli.run(["status"]) in {3, 4}
        assert capsys.readouterr().err.endswith(named)
        stopped(alone)


def test_a_folder_of_somebody_else_is_not_called_stopped(
    alone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = stopped(alone)
    real = Path.open

    def closed(path: Path, *words: Any, **more: Any) -> Any:
        if path == data / "lock":
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *words, **more)

    monkeypatch.setattr(Path, "open", closed)
    for words in (["status"], ["topic", "list"], ["disk"], ["down"]):
        assert cli.run(words) == 1
        assert f"cannot look into {data}: no permission" in capsys.readouterr().err


def test_why_a_cluster_ended_whose_folder_is_gone_is_still_known(
    alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = started(tmp_path / "base", stopped(alone))
    registry.note(run)
    Path(run.data_dir).rename(tmp_path / "moved")
    registry.note(run, ended="its data folder was moved")
    assert cli.run(["status"]) == 3
    assert "the one that ran there has ended: its data folder was moved" in capsys.readouterr().err
    registry.note(structs.replace(run, folder=(1, 2)))
    assert cli.run(["status"]) == 3
    assert "has ended" not in capsys.readouterr().err
