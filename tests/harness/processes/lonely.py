"""A user without clusters, and what clusters of theirs leave: for commands run in this process."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.node.runtime.lives import Life, identity
from tidelog.tools.supervisor import leftovers, runs
from tidelog.tools.supervisor.folder import DataFolder
from tidelog.tools.supervisor.runs import Run


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder without a cluster, and no other cluster of this user."""
    project, base = tmp_path / "project", tmp_path / "base"
    project.mkdir()
    base.mkdir()
    (project / "plan.json").write_text('{"version": 1, "partitions": []}')
    monkeypatch.chdir(project)
    monkeypatch.setattr(runs, "bases_looked_in", lambda: {base})
    monkeypatch.setattr(runs, "runtime_bases", lambda: iter([base]))
    monkeypatch.setattr(runs, "MEMORY_FOLDER", str(base))
    monkeypatch.setattr(leftovers, "MEMORY_FOLDER", str(base))
    (tmp_path / "input").touch()
    for name in [name for name in os.environ if name.startswith(("TIDELOG_", "KAFKA_"))]:
        monkeypatch.delenv(name)
    with (tmp_path / "input").open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield project


def stopped(folder: Path, name: str = "default") -> Path:
    """The data of a stopped cluster under that folder."""
    data = folder / ".tidelog" / name
    claimed = DataFolder.claim(data, "default")
    claimed.save_cluster()
    claimed.let_go()
    return data


def started(base: Path, data: Path) -> Run:
    """What a run of this very process in that folder says of itself."""
    run = Run(
        run_id="0011aabb",
        pid=os.getpid(),
        cluster="default",
        runtime_dir=str(base / "tidelog-0011aabb"),
        data_dir=str(data),
        bootstrap="127.0.0.1:9092,127.0.0.1:9093",
        folder=identity(data),
        life=Life.own(),
    )
    Path(run.runtime_dir).mkdir()
    leftovers.say_first(run)
    return run
