"""The harness of planted faults and of drawn histories: what it finds, records and prints."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.faults import planting as module
from harness.faults.planting import Plant, Planting, kind_of, unknown_tests
from harness.suite.budgets import Histories

TEST = "test_a_planted_fault_is_found"


@pytest.fixture
def product() -> SimpleNamespace:
    return SimpleNamespace(limit=3)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "plants.json"
    path.write_text("{}")
    monkeypatch.setattr(module, "TABLE", path)
    return path


def plant_in(product: SimpleNamespace) -> Plant:
    return lambda patch: patch.setattr(product, "limit", 5)


def checked(product: SimpleNamespace, seed: int) -> None:
    assert seed % 7 != product.limit, "R1: too much"


def writing() -> Planting:
    return Planting("a_test.py", TEST, searches=False, writes=True)


def comparing(*, searches: bool = False) -> Planting:
    return Planting("a_test.py", TEST, searches=searches, writes=False)


def test_the_first_seed_that_finds_the_fault_is_recorded_and_found_again(
    table: Path, product: SimpleNamespace
) -> None:
    writing().is_found(plant_in(product), lambda seed: checked(product, seed), match="R1")
    assert '"seed": 5' in table.read_text()
    assert "AssertionError in planting_test.checked: R1" in table.read_text()
    comparing().is_found(plant_in(product), lambda seed: checked(product, seed))
    assert product.limit == 3


@pytest.mark.usefixtures("table")
def test_a_fault_without_a_recorded_seed_fails(product: SimpleNamespace) -> None:
    with pytest.raises(AssertionError, match="no seed is recorded"):
        comparing().is_found(plant_in(product), lambda seed: checked(product, seed))


@pytest.mark.usefixtures("table")
def test_a_fault_that_the_recorded_seed_does_not_find_fails(product: SimpleNamespace) -> None:
    writing().is_found(plant_in(product), lambda seed: checked(product, seed))
    with pytest.raises(AssertionError, match=r"is not noticed \(seed 5\)"):
        comparing().is_found(plant_in(product), lambda _seed: None)


@pytest.mark.usefixtures("table")
def test_a_fault_that_is_found_in_another_way_fails(product: SimpleNamespace) -> None:
    writing().is_found(plant_in(product), lambda seed: checked(product, seed))

    def breaks(_seed: int) -> None:
        raise KeyError("another")

    with pytest.raises(AssertionError, match="KeyError in planting_test"):
        comparing().is_found(plant_in(product), breaks)


@pytest.mark.usefixtures("table")
def test_a_search_at_night_fails_if_no_seed_finds_the_fault(product: SimpleNamespace) -> None:
    writing().is_found(plant_in(product), lambda seed: checked(product, seed))
    with pytest.raises(AssertionError, match="1000 seeds do not find the fault"):
        comparing(searches=True).is_found(plant_in(product), lambda _seed: None)


@pytest.mark.usefixtures("table")
def test_a_scenario_that_fails_without_the_fault_fails(product: SimpleNamespace) -> None:
    def always() -> None:
        raise AssertionError("always")

    with pytest.raises(AssertionError, match="always"):
        writing().is_noticed(plant_in(product), always)


def test_the_kind_of_a_failure_names_the_function_that_raised_it(product: SimpleNamespace) -> None:
    with pytest.raises(AssertionError) as found:
        checked(product, 3)
    assert kind_of(found.value) == "AssertionError in planting_test.checked: R1"


def test_recorded_tests_that_are_gone_are_told(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "a_test.py").write_text("def test_one() -> None: ...\n")
    known = ["a_test.py::test_one[x]", "a_test.py::test_two", "b_test.py::test_one"]
    assert unknown_tests(known, tmp_path) == ["a_test.py::test_two", "b_test.py::test_one"]


# -- histories


def test_at_least_one_history_runs_and_the_number_is_told() -> None:
    told: list[object] = []
    ran: list[int] = []
    histories = Histories(0.0, 40, lambda _name, value: told.append(value))
    assert histories.run(ran.append) == 1
    assert ran == [40]
    assert told[0][0] == 1  # type: ignore[index]  # a list


def test_a_history_that_fails_names_its_seed() -> None:
    def fails_at_three(seed: int) -> None:
        assert seed != 3, "broken"

    with pytest.raises(AssertionError, match="the history of seed 3 fails: broken"):
        Histories(60.0, 0, lambda *_: None).run(fails_at_three)
