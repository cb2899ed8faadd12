"""Planted faults: known mistakes that are put into the product on purpose. A test must notice each.

`tests/plants.json` records how each of them is noticed: by which test, with which seed, and by
which failure. A usual run tries only that seed. `--nightly` also searches again from seed 0, and
`--plants=write` records what that search finds; review the difference as with golden files.
"""

import fcntl
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

import pytest

from harness.suite.tidy_checks import ROOT

TABLE: Final = ROOT / "tests" / "plants.json"
SEARCHED_MAX: Final = 1_000
"""A search gives up after this many seeds."""
UPDATE: Final = "run it with --plants=write and review the change of tests/plants.json"

Plant = Callable[[pytest.MonkeyPatch], object]
_FUNCTION: Final = re.compile(r"^def (test_\w+)", re.MULTILINE)
_RULE: Final = re.compile(r"\(?'?([A-Z]\d{1,2})\b")
"""Some checks name the rule that was broken at the start of their message."""

Rows = dict[str, dict[str, dict[str, Any]]]
"""By test file, then by test: `seed` and `failure`."""


def recorded() -> Rows:
    with TABLE.open(encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_SH)  # another worker may be writing it
        rows: Rows = json.load(stream)
    return rows


def unknown_tests(known: Iterable[str], folder: Path) -> list[str]:
    """Of `file::test` those that are not there. Names of test files are unique."""
    functions: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        functions[path.name] = set(_FUNCTION.findall(path.read_text(encoding="utf-8")))
    split = ((one, *one.split("[")[0].split("::")) for one in known)
    return [one for one, file, test in split if test not in functions.get(file, set())]


def failure_of(check: Callable[[], object]) -> Exception | None:
    try:
        check()
    except Exception as failure:  # noqa: BLE001 -- its kind is compared with the recorded one
        return failure
    return None


def kind_of(failure: Exception) -> str:
    """The type of a failure, the function of ours that raised it, and the rule that it broke."""
    frames = [frame for frame, _ in walk_tb(failure.__traceback__)]
    ours = [one for one in frames if _is_ours(one.f_code.co_filename)]
    name = ours[-1].f_globals["__name__"]
    module = (
        name.removeprefix("harness.") if name.startswith("harness.") else name.rpartition(".")[2]
    )
    rule = _RULE.match(str(failure))
    place = f"{type(failure).__name__} in {module}.{ours[-1].f_code.co_qualname}"
    return f"{place}: {rule[1]}" if rule else place


def _is_ours(file: str) -> bool:
    return file.startswith(str(ROOT)) and "site-packages" not in file


@dataclass(frozen=True)
class Planting:
    """What the fixture `planting` gives a test."""

    file: str
    test: str
    searches: bool
    writes: bool

    def is_noticed(self, plant: Plant, check: Callable[[], object]) -> None:
        """The check passes as things are, and fails in the recorded way with the plant."""
        check()
        self._compare(None, _with(plant, check))

    def is_found(
        self,
        plant: Plant,
        history: Callable[[int], object],
        *,
        by: type[Exception] | tuple[type[Exception], ...] = AssertionError,
        match: str = "",
    ) -> None:
        """The history of the recorded seed fails in the recorded way with the plant."""
        seed = recorded().get(self.file, {}).get(self.test, {}).get("seed")
        if self.searches or self.writes:
            found = self._searched(plant, history, by, match)
            seed = found if self.writes else seed
        assert seed is not None, f"no seed is recorded for {self.test}: {UPDATE}"
        failure = _with(plant, lambda: history(seed))
        assert failure is None or re.search(match, str(failure)), (match, failure)
        self._compare(seed, failure)

    def _searched(
        self,
        plant: Plant,
        history: Callable[[int], object],
        by: type[Exception] | tuple[type[Exception], ...],
        match: str,
    ) -> int:
        for seed in range(SEARCHED_MAX):
            failure = _with(plant, partial(history, seed))
            if isinstance(failure, by) and re.search(match, str(failure)):
                history(seed)  # without the plant it must pass
                return seed
        raise AssertionError(f"{SEARCHED_MAX} seeds do not find the fault")

    def _compare(self, seed: int | None, failure: Exception | None) -> None:
        assert failure is not None, f"the planted fault is not noticed (seed {seed}): {UPDATE}"
        found = {"seed": seed, "failure": kind_of(failure)}
        if self.writes:
            _record(self.file, self.test, found)
        assert recorded().get(self.file, {}).get(self.test) == found, f"{UPDATE}: {found}"


def _with(plant: Plant, check: Callable[[], object]) -> Exception | None:
    with pytest.MonkeyPatch.context() as patch:
        plant(patch)
        return failure_of(check)


def _record(file: str, test: str, found: dict[str, Any]) -> None:
    """Other workers of the run may record theirs at the same time."""
    with TABLE.open("r+", encoding="utf-8") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        rows: Rows = json.loads(stream.read())
        rows.setdefault(file, {})[test] = found
        stream.seek(0)
        stream.truncate()
        stream.write(_text_of(rows))


def _text_of(rows: Rows) -> str:
    """One line for each planted fault, so that a change shows which one it is about."""
    files = []
    for file, tests in sorted(rows.items()):
        lines = [f"{json.dumps(test)}: {json.dumps(row)}" for test, row in sorted(tests.items())]
        files.append(f"{json.dumps(file)}: {{\n" + ",\n".join(lines) + "\n}")
    return "{\n" + ",\n".join(files) + "\n}\n"


@pytest.fixture
def planting(request: pytest.FixtureRequest) -> Planting:
    config = request.config
    return Planting(
        Path(str(request.node.path)).name,
        request.node.name,
        searches=bool(config.getoption("--nightly")),
        writes=config.getoption("--plants") == "write",
    )
