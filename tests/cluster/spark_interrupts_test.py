"""Programs of Spark end in order whenever they are told to: no JVM is left, nothing is traced."""

import random
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from harness.processes.cluster import Cluster
from harness.spark import setup as spark
from harness.spark.interrupts import Ended, started
from harness.spark.plain import Place
from harness.suite.need import need
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Partition
from tidelog.spark.pipelines.topics import connect, ends

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Blow(NamedTuple):
    """When which signal comes, and to whom."""

    moment: str
    later_s: float
    """It comes up to this long after the moment has begun, by draw."""
    number: signal.Signals
    group: bool
    program: str = "pipeline"


CASES = [
    Blow("importing", 1.0, signal.SIGINT, group=True),
    Blow("launching", 0.3, signal.SIGINT, group=True),
    Blow("starting", 2.5, signal.SIGINT, group=True),
    Blow("starting", 2.5, signal.SIGTERM, group=False),
    Blow("working", 1.0, signal.SIGINT, group=True),
    Blow("importing", 1.0, signal.SIGTERM, group=False, program="first"),
    Blow("starting", 4.0, signal.SIGINT, group=True, program="first"),
]
DRAWN = [
    Blow(moment, later_s, number, group=group, program=program)
    for moment, later_s in (("importing", 1.0), ("launching", 0.5), ("starting", 4.0))
    for number in (signal.SIGINT, signal.SIGTERM)
    for group in (False, True)
    for program in ("pipeline", "first")
] * 2


def shown(blow: Blow) -> str:
    whom = "group" if blow.group else "process"
    return f"{blow.number.name}-to-the-{whom}-while-{blow.program}-is-{blow.moment}"


def tell(blow: Blow, cluster: Cluster, folder: Path) -> tuple[Ended, list[str]]:
    need("java")
    topic = Place(cluster.bootstrap).topic()
    load = ["--topic", topic, "--rows", "1000M", "--rate", "2000", "--master", "local[1]"]
    load += ["--history", str(folder / "acks")]
    words = {
        "pipeline": [*cluster.program, "pipeline", "produce", *load, "-b", cluster.bootstrap],
        "first": ["-m", "tidelog.spark", cluster.bootstrap],
    }[blow.program]
    client, place = connect(cluster.bootstrap), (topic, Partition(0))
    environment = {**cluster.variables(), **spark.kept_in(folder)}
    with started(words, folder, environment) as program:
        program.until_it_is(
            blow.moment,
            lambda: ends(client, [place], Isolation.READ_UNCOMMITTED)[place] > 0,
        )
        time.sleep(random.uniform(0, blow.later_s))
        program.tell(blow.number, group=blow.group)
        return program.ended(), program.left()


def check(blow: Blow, cluster: Cluster, folder: Path) -> None:
    ended, left = tell(blow, cluster, folder)
    assert left == [], ended
    assert ended.code == 128 + blow.number, ended
    assert "Traceback" not in ended.err, ended.err
    assert ended.out == ""
    history = folder / "acks"
    assert [*history.glob("part-*")] == [], "what was broken off is no history"
    remnants = {one.name for one in folder.iterdir()} - {"stdout", "stderr", "acks"}
    assert remnants == set(), "its scratch files are gone"


@pytest.mark.parametrize("blow", CASES, ids=shown)
def test_a_program_that_is_told_to_end_leaves_no_process_and_traces_nothing(
    cluster: Cluster, tmp_path: Path, blow: Blow
) -> None:
    check(blow, cluster, tmp_path)


@pytest.mark.parametrize("number", range(len(DRAWN)))
def test_a_program_ends_in_order_at_any_drawn_moment(
    cluster: Cluster, tmp_path: Path, number: int, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("starts dozens of JVMs: --nightly")
    check(DRAWN[number], cluster, tmp_path)
