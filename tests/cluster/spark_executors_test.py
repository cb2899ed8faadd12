"""Executors are processes of their own, without tidelog: whatever fails, each row is there once.

Their Python has what tidelog needs, but not tidelog, which is sent to them as an archive.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.processes.cluster import Cluster, until
from harness.spark import setup as spark
from harness.spark.executors import BATCH, Trouble, seen, write_numbers
from harness.spark.plain import Place
from harness.spark.standalone import clean_python, standalone
from harness.suite.need import need
from harness.suite.tidy_checks import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

IN_ONE_JVM_EACH = "local-cluster[2,1,1024]"
DRIVER = -1
"""The part of the steps that the driver takes."""
RUN = (
    "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); "
    "runpy.run_module('harness.spark.executors', run_name='__main__', alter_sys=True)"
)
Act = Sequence[Trouble]

RETRIED = [Trouble("raise", 0), Trouble("executor", 1, "mid")]
"""Spark tries the tasks again, and the query goes on."""
ALL_RETRIED = [
    *RETRIED,
    Trouble("executor", 2, "between", DRIVER),
    Trouble("worker", 3),
    Trouble("worker", 4, "mid"),
    Trouble("executor", 5),
]


class Copying:
    """A topic of numbers, and a stream that copies it on executors that lack tidelog."""

    def __init__(self, bootstrap: str, folder: Path, master: str, *, batches: int) -> None:
        self.folder, self.rows = folder, batches * BATCH
        place = Place(bootstrap)
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.asked: dict[str, Any] = {
            "bootstrap": bootstrap,
            "source": place.topic(partitions=2),
            "sink": place.topic(partitions=2),
            "checkpoint": str(folder / "checkpoint"),
            "marks": str(self.marks),
            "master": master,
            "conf": {"spark.submit.pyFiles": str(folder / "tidelog.zip")},
        }
        write_numbers(bootstrap, self.asked["source"], batches)

    def run(self, *acts: Act) -> list[dict[str, Any]] | None:
        """A driver, to its end: what came of each act, or nothing where the driver died."""
        words = ["-W", "ignore", "-c", RUN, str(ROOT / "tests")]
        with (self.folder / "said").open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, *words, json.dumps({**self.asked, "acts": acts})],
                env=self._environment(),
                cwd=self.folder,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,
                text=True,
            )
            with process:
                out, _ = process.communicate(timeout=1_000)
                _end_session(process.pid)
        for trouble in (one for act in acts for one in act):
            text = (self.folder / "said").read_text()[-4_000:]
            assert (self.marks / trouble.mark).exists(), f"ended before {trouble}: {text}"
        if process.returncode:
            return None
        found: list[dict[str, Any]] = json.loads(out.splitlines()[-1])
        return found

    def _environment(self) -> dict[str, str]:
        """Without PYTHONPATH, which executors would inherit, and what needs it."""
        given = {**spark.environment(), **spark.kept_in(self.folder)}
        for name in ("PYTHONPATH", *spark.preloaded_workers()):
            del given[name]
        return {**given, "PYSPARK_PYTHON": str(self.folder / "clean/bin/python")}

    def seen(self) -> list[int]:
        """The numbers that readers of committed rows find."""
        return seen(self.asked["bootstrap"], self.asked["sink"])


def _end_session(leader: int) -> None:
    """The Python driver of a JVM that was killed lives on a while, and so do its children."""
    left = [pid for pid in _of_session(leader) if pid != leader]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    until(lambda: not _of_session(leader), "all of the session have ended")


def _of_session(leader: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session, *_ = path.read_text().rpartition(")")[2].split(maxsplit=4)
        except (OSError, ValueError):
            continue
        if state != "Z" and int(session) == leader:
            found.append(int(path.parent.name))
    return found


def prepared(cluster: Cluster, folder: Path) -> Path:
    """What is sent, and the Python that lacks it."""
    need("java")
    cluster.done("pipeline", "package", "--dest", str(folder))
    return clean_python(folder / "clean")


def test_rows_are_there_once_though_a_function_raises_and_an_executor_is_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    prepared(cluster, tmp_path)
    copying = Copying(cluster.bootstrap, tmp_path, IN_ONE_JVM_EACH, batches=3)
    found = copying.run([*RETRIED, Trouble("refuse", 2)], [])
    assert found == [
        {"failed": True, "seen": list(range(2 * BATCH))},
        {"failed": False, "seen": list(range(copying.rows))},
    ]


@pytest.fixture(scope="module")
def master(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[str]:
    if not request.config.getoption("--nightly"):
        pytest.skip("starts a Spark cluster, and takes minutes: --nightly")
    need("java")
    folder = tmp_path_factory.mktemp("standalone")
    with standalone(folder, clean_python(folder / "clean")) as address:
        yield address


@pytest.mark.timeout(1_800)
def test_rows_are_there_once_on_a_cluster_of_spark_whoever_fails(
    cluster: Cluster, master: str, tmp_path: Path
) -> None:
    """After each run exactly the micro-batches before its trouble are seen."""
    prepared(cluster, tmp_path)
    copying = Copying(cluster.bootstrap, tmp_path, master, batches=10)
    stopped = copying.run([*ALL_RETRIED, Trouble("stand", 6)])
    assert stopped == [{"failed": False, "seen": list(range(6 * BATCH))}]
    failed = copying.run([Trouble("refuse", 7)])
    assert failed == [{"failed": True, "seen": list(range(7 * BATCH))}]
    assert copying.run([Trouble("driver", 8)]) is None
    assert copying.seen() == list(range(8 * BATCH)), "nothing of one whose driver died in mid-task"
    assert copying.run([Trouble("driver", 8, "between", DRIVER)]) is None
    assert len(copying.seen()) == 8 * BATCH + BATCH // 2, "of two transactions one is committed"
    assert copying.run([]) == [{"failed": False, "seen": list(range(copying.rows))}]
