"""Whatever ends the work of a sink of Spark at whatever moment: after recovery each row is there.

The table of cells is `harness/spark/matrix.py`, which prints it. A failure names its cells.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster
from harness.spark.matrix import (
    ALL,
    CORE,
    DRIVER_ENDS,
    HOWS,
    IN_EVERY_RUN,
    PLANTED,
    POSSIBLE,
    Cell,
    Delivery,
    What,
    When,
    documented,
    impossible,
    reasons,
)
from harness.spark.matrix_night import places, report, run, spread
from harness.spark.matrix_results import Result, Results
from harness.spark.matrix_run import Matrix, SharedSessions, grouped
from harness.spark.shared import SharedSpark
from harness.suite.tidy_checks import ROOT

A_NIGHT_S = 12 * 3_600
FINDS_THE_PLANT = Cell(What.FUNCTION, When.LAST, HOWS[0])


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """A night that was interrupted goes on if this variable names its file."""
    return Results(Path(os.environ.get("SPARK_MATRIX_RESULTS", tmp_path / "results.jsonl")))


def wrong(on: Matrix, cells: Sequence[Cell], results: Results) -> dict[str, str]:
    """Run them and print the table; what is wrong with which."""
    run(on, results.missing(on.label, cells, wrong=False), results)
    sys.stdout.write(f"\n{report(on.label, results)}\n")
    return {one.cell.name: one.wrong for one in results.of(on.label) if one.wrong}


def test_a_run_that_was_interrupted_goes_on_with_the_cells_that_are_missing(
    results: Results,
) -> None:
    right, wrong, missing = IN_EVERY_RUN[:3]
    results.add(Result("tidelog", right, "", 1.5))
    results.add(Result("tidelog", wrong, "a row is missing", 1.5))
    results.add(Result("kafka", missing, "", 1.5))
    wanted = [right, wrong, missing]
    assert results.missing("tidelog", wanted, wrong=False) == [missing]
    assert results.missing("tidelog", wanted, wrong=True) == [wrong, missing]
    results.add(Result("tidelog", wrong, "", 2.5))
    assert results.missing("tidelog", wanted, wrong=True) == [missing]
    assert "tidelog: 2 of 517 cells in 4 s" in report("tidelog", results)


def test_cells_share_a_session_only_if_the_same_end_of_it_strikes_them() -> None:
    groups = [*grouped(spread(POSSIBLE))]
    assert sorted(cell.name for group in groups for cell in group) == sorted(
        cell.name for cell in POSSIBLE
    )
    for group in groups:
        assert len(group) == 1 or {cell.what for cell in group} <= {*DRIVER_ENDS}
        assert len({cell.what for cell in group}) == 1


def test_each_cell_of_the_table_is_run_or_cannot_exist() -> None:
    assert len({cell.name for cell in ALL}) == len(What) * len(When) * len(HOWS)
    assert len(POSSIBLE) + sum(1 for cell in ALL if impossible(cell)) == len(ALL)
    assert {*IN_EVERY_RUN, *CORE, FINDS_THE_PLANT} <= {*POSSIBLE}


def test_every_run_has_a_cell_before_at_and_after_the_end_of_the_input() -> None:
    assert {When.MIDDLE, When.LAST, When.BETWEEN} <= {cell.when for cell in IN_EVERY_RUN}
    assert {Delivery.ONCE, Delivery.ATOMIC} == {cell.how.delivery for cell in IN_EVERY_RUN}
    assert not any(cell.kills_driver for cell in IN_EVERY_RUN)


def test_the_page_has_as_many_cells_as_are_run() -> None:
    page = (ROOT / "docs/spark.md").read_text()
    assert f"{len(ALL)} cells, of which {len(POSSIBLE)} can exist" in page
    assert f"{len(CORE)} of them on Apache Kafka" in page
    assert documented() in page


@pytest.mark.slow
@pytest.mark.timeout(A_NIGHT_S)
def test_each_row_is_there_once_after_whatever_ended_the_work(
    cluster: Cluster, shared_spark: SharedSpark, results: Results
) -> None:
    """And a sink that commits when its input ends is found."""
    sessions = SharedSessions(shared_spark)
    assert wrong(Matrix(cluster.bootstrap, sessions, "tidelog"), IN_EVERY_RUN, results) == {}
    planted = Matrix(cluster.bootstrap, sessions, "planted", planted=True)
    wrong(planted, [FINDS_THE_PLANT], results)
    assert [one.cell for one in results.of("planted") if one.is_found] == [FINDS_THE_PLANT]


@pytest.mark.slow
@pytest.mark.timeout(A_NIGHT_S)
def test_each_row_is_there_once_after_whatever_ends_the_work_of_all_cells(
    tmp_path: Path, results: Results, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("the whole matrix takes hours: --nightly")
    with places(tmp_path) as (bootstrap, sessions):
        assert wrong(Matrix(bootstrap, sessions, "tidelog"), spread(POSSIBLE), results) == {}
        for reason in reasons():
            sys.stdout.write(f"cannot exist: {reason}\n")
        on = Matrix(bootstrap, sessions, "planted", planted=True)
        wrong(on, spread(PLANTED), results)
    found = [one.cell for one in results.of("planted") if one.is_found]
    sys.stdout.write(f"{len(found)} cells find a sink that commits when its input ends\n")
    assert FINDS_THE_PLANT in found


@pytest.mark.slow
@pytest.mark.timeout(A_NIGHT_S)
def test_each_row_is_there_once_on_apache_kafka_too(
    tmp_path: Path, results: Results, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("the core of the matrix runs on Apache Kafka with --nightly")
    with places(tmp_path, is_kafka=True) as (bootstrap, sessions):
        assert wrong(Matrix(bootstrap, sessions, "kafka"), spread(CORE), results) == {}
