"""Which survivors fail a run and which are only told, and what is kept of a long run."""

import ast
from pathlib import Path
from textwrap import dedent

import pytest

from harness.faults.planting import unknown_tests
from harness.mutants.changes import Function, Module
from harness.mutants.judging import judged
from harness.mutants.reach import Reached, modules
from harness.mutants.record import Known, Record, Results
from harness.mutants.running import functions_of, sampled
from harness.mutants.session import TESTS
from harness.mutants.trying import Mutant, Outcome


def function_of(text: str) -> Function:
    module = Module("source/tides.py", ast.parse(dedent(text)), Path())
    (found,) = module.functions.values()
    return found


RISES = function_of("def rises(a, b):\n    return a < b\n")
BOUND = "`a < b` becomes `a <= b`"
TURNED = "`a < b` becomes `a >= b`"


def known(*survivors: str, digest: str = RISES.digest) -> Record:
    return Record({RISES.key: Known(digest, 2, ("tides_test.py::test_a",), survivors)}, {})


def fails(record: Record, outcome: Outcome) -> bool:
    failures, told = judged([outcome], {RISES.key: RISES}, record)
    assert len(failures) + len(told) == 1
    return bool(failures)


def test_a_survivor_of_a_function_that_was_clean_fails_and_names_who_noticed_it() -> None:
    outcome = Mutant(RISES, BOUND).outcome(survived=3)
    failures, told = judged([outcome], {RISES.key: RISES}, known())
    assert not told
    (failure,) = failures
    assert failure.startswith(f"source/tides.py:2: rises: {BOUND}: survives 3 tests")
    assert failure.endswith("noticed it: tides_test.py::test_a")


def test_a_survivor_of_a_function_that_has_another_is_only_told() -> None:
    assert not fails(known(TURNED), Mutant(RISES, BOUND).outcome(survived=3))


def test_a_survivor_of_a_function_that_was_changed_since_is_only_told() -> None:
    assert not fails(known(digest="another"), Mutant(RISES, BOUND).outcome(survived=3))


def test_a_survivor_of_a_function_that_was_never_tried_is_only_told() -> None:
    assert not fails(Record({}, {}), Mutant(RISES, BOUND).outcome(survived=3))


def test_an_accepted_survivor_is_not_told_and_leaves_its_function_clean() -> None:
    record = Record(known(BOUND).functions, {RISES.key: {BOUND: "both are the same tide"}})
    accepted = Mutant(RISES, BOUND).outcome(survived=3)
    assert judged([accepted], {RISES.key: RISES}, record) == ([], [])
    assert fails(record, Mutant(RISES, TURNED).outcome(survived=3))


def test_a_killed_mutant_is_not_told() -> None:
    outcome = Mutant(RISES, BOUND).outcome("tides_test.py::test_a", "assert False")
    assert judged([outcome], {RISES.key: RISES}, known()) == ([], [])


def test_a_function_is_known_once_all_its_mutants_were_tried() -> None:
    one = Mutant(RISES, BOUND).outcome("tides_test.py::test_a", "assert False")
    another = Mutant(RISES, TURNED).outcome(survived=1)
    nothing = Record({}, {})
    assert nothing.with_results([RISES], [one]).functions == {}
    assert nothing.with_results([RISES], [one, another]).functions == known(TURNED).functions


def test_a_function_that_is_gone_is_no_longer_known() -> None:
    assert known().with_results([], []).functions == {}


def test_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    done, left = Mutant(RISES, BOUND), Mutant(RISES, TURNED)
    Results(path).add(done.outcome(survived=3))
    again = Results(path)
    assert again.has(done)
    assert not again.has(left)


def test_a_run_that_was_killed_while_it_wrote_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first, second = Mutant(RISES, BOUND), Mutant(RISES, TURNED)
    Results(path).add(first.outcome(survived=3))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    again = Results(path)
    assert again.has(first)
    again.add(second.outcome(survived=4))
    assert [one.survived for one in Results(path).all] == [3, 4]


def test_a_mutant_of_a_function_that_was_changed_since_is_tried_again(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.jsonl")
    results.add(Mutant(RISES, BOUND).outcome(survived=3))
    changed = function_of("def rises(a, b):\n    return a < b and b\n")
    assert not results.has(Mutant(changed, BOUND))


def test_the_map_reads_as_it_was_written(tmp_path: Path) -> None:
    keys = ["a.py:f", "b.py:g", "b.py:h"]
    found = [(f"tides_test.py::test_{n}", n / 10, keys[: 1 + n % 3]) for n in range(6)]
    reached = Reached.of(found)
    path = tmp_path / "reached.json"
    reached.write(path)
    again = Reached.read(path)
    assert (again.seconds, again.by_function) == (reached.seconds, reached.by_function)


def test_tests_that_are_about_a_function_come_first() -> None:
    reached = Reached.of(
        [
            ("a_test.py::test_long", 9.0, ["a.py:f"]),
            ("a_test.py::test_of_all", 0.1, ["a.py:f", *map(str, range(300))]),
            ("a_test.py::test_of_this", 0.2, ["a.py:f", "b.py:g"]),
        ]
    )
    names = [one.partition("::")[2] for one in reached.by_function["a.py:f"]]
    assert names == ["test_of_this", "test_long", "test_of_all"]


def test_a_file_of_tests_that_is_recorded_again_replaces_what_was_known_of_it() -> None:
    before = Reached.of([("a_test.py::test_x", 1, ["f"]), ("b_test.py::test_y", 1, ["f"])])
    after = before.with_these([("a_test.py::test_z", 1, ["f"])])
    assert after.seconds.keys() == {"a_test.py::test_z", "b_test.py::test_y"}


def test_another_seed_draws_another_sample_and_the_same_one_the_same() -> None:
    mutants = [Mutant(RISES, str(number)) for number in range(1_000)]
    first, second = sampled(mutants, "a", 40), sampled(mutants, "b", 40)
    assert len(first) == 40
    assert first != second
    assert first == sampled(mutants, "a", 40)


def test_the_tests_of_nearly_all_functions_are_recorded() -> None:
    """The mutants of all others are left out, and a sample without them says nothing."""
    functions, reached = functions_of(modules()), Reached.read().by_function
    missing = [one.key for one in functions if one.key not in reached]
    assert len(missing) <= len(functions) // 10, f"python -m harness.mutants reach: {missing}"


def test_each_test_that_killed_a_mutant_of_a_clean_function_is_there() -> None:
    """Else a renamed test would let its mutants survive, in whichever run draws one of them."""
    record = Record.read()
    killers = {
        test
        for function in functions_of(modules())
        if record.is_clean(function)
        for test in record.functions[function.key].killed_by
    }
    gone = unknown_tests(sorted(killers), TESTS)
    assert gone == [], "give these tests their new names in tests/mutants.json and reached.json"


def test_what_is_accepted_is_a_mutant_of_a_function_that_is_there() -> None:
    functions = {one.key: one for one in functions_of(modules())}
    accepted = Record.read().accepted
    assert accepted.keys() <= functions.keys(), "remove them from tests/mutants_accepted.json"
    unknown = [(key, {*texts} - functions[key].changes.keys()) for key, texts in accepted.items()]
    assert [one for one in unknown if one[1]] == [], "remove them from mutants_accepted.json"
    assert all(why for texts in accepted.values() for why in texts.values())


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("return a < b", [BOUND, TURNED]),
        ("return a and b", ["`a and b` becomes `a or b`"]),
        ("return not a", ["`not a` loses its not"]),
        ("return a + 1", ["`a + 1` becomes `a - 1`", "`1` becomes `2` in `a + 1`"]),
        ("return min(a, b)", ["`min(a, b)` becomes `max(a, b)`"]),
        ("return a is b", ["`a is b` becomes `a is not b`"]),
        ("a.x = b", ["returns at once", "`a.x = b` is removed"]),
        ("a = b\n    return a", ["returns at once"]),
        (
            "return 1 if a else b",
            ["condition `a` is turned round", "`1` becomes `2` in `1 if a else b`"],
        ),
        ("return [x for x in a if x]", ["condition `x` is dropped"]),
        ("return 'text' + f'{a}'", []),
        ("assert a < b\n    return a", ["returns at once"]),
        (
            "raise ValueError(f'{a + 1}')",
            ["returns at once", "`raise ValueError(f'{a + 1}')` is removed"],
        ),
        ("'Words.'\n    return True", ["`True` becomes `False` in `return True`"]),
    ],
)
def test_what_is_changed_in_a_function(text: str, changes: list[str]) -> None:
    assert list(function_of(f"def tide(a, b):\n    {text}\n").changes) == changes


def test_a_change_is_taken_back_once_its_code_is_made() -> None:
    before = RISES.digest
    codes = {RISES.changed(one).co_code for one in RISES.changes.values()}
    assert len(codes) == 2
    assert function_of(ast.unparse(RISES.node)).digest == before
