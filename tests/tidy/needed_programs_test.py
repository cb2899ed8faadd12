"""A test whose program is missing skips; where the program is required it fails."""

import ast
import re
from pathlib import Path

import pytest

from harness.kafka.jars import KAFKA_VERSION, need_kafka
from harness.suite.need import ABILITIES, need, need_that
from harness.suite.tidy_checks import ROOT
from harness.suite.tools_cache import CACHE_VARIABLE

ABSENT = "no-such-program-here"


def test_a_program_that_is_there_is_no_reason_to_skip() -> None:
    need("sh")
    need_that("sh", works=True, why="answers")


def test_a_missing_program_skips_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARNESS_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match=ABSENT):
        need("sh", ABSENT)


def test_a_missing_program_fails_where_it_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_REQUIRE", f"java, {ABSENT}")
    with pytest.raises(pytest.fail.Exception, match=ABSENT):
        need(ABSENT)


def test_a_program_that_does_not_work_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARNESS_REQUIRE", "sh")
    with pytest.raises(pytest.fail.Exception, match="may not trace"):
        need_that("sh", works=False, why="may not trace here")


def test_only_who_has_no_jars_of_kafka_yet_needs_maven(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "java"
    java.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.delenv("HARNESS_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match="mvn"):
        need_kafka()
    jars = tmp_path / f"kafka-{KAFKA_VERSION}"
    jars.mkdir()
    assert need_kafka() == f"{jars}:{jars}/*"
    java.unlink()
    with pytest.raises(pytest.skip.Exception, match="java"):
        need_kafka()


OPTIONAL = {"kcat", "python3.11", "sh"}
"""Not required of CI: the first may skip there, and without the others nothing runs at all."""


def needed(source: str) -> set[str]:
    """The names that calls of `need` and `need_that` have in a source, as they stand there."""
    if "need(" not in source and "need_that(" not in source:
        return set()
    calls = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Call)]
    names = [one.args for one in calls if ast.unparse(one.func) == "need"]
    names += [one.args[:1] for one in calls if ast.unparse(one.func) == "need_that"]
    return {ast.literal_eval(one) for row in names for one in row if isinstance(one, ast.Constant)}


def test_ci_requires_every_program_that_a_test_would_skip_for() -> None:
    known = {one for path in (ROOT / "tests").rglob("*.py") for one in needed(path.read_text())}
    assert {"strace", "javac", "loop"} <= known
    required = re.search(r"HARNESS_REQUIRE-([\w,]+)", (ROOT / ".ci/run").read_text())
    assert required
    assert known - ABILITIES - OPTIONAL == {*required[1].split(",")}
