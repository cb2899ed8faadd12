"""What pipelines decide without Spark: offsets in a copy, differences, refusals, sentences."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tidelog.clients.failures import TimedOutError, UnreachableError
from tidelog.spark.options import OptionError
from tidelog.spark.pipelines import asof, compaction, mirror, produce, verify
from tidelog.spark.pipelines.arguments import Arguments
from tidelog.spark.pipelines.failures import PipelineError, UsageError
from tidelog.spark.pipelines.interrupts import Interrupts
from tidelog.spark.pipelines.replay import differences
from tidelog.spark.pipelines.running import _addresses, check_java, run, told
from tidelog.spark.pipelines.topics import check_topic_name
from tidelog.spark.pipelines.translating import translated
from tidelog.tools import cli
from tidelog.wire.errors import ErrorCode, Rejected

B = "h:1"


def growing(*tails: list[int]) -> Iterator[Any]:
    return iter([np.array(one, np.int64) for one in tails])


@pytest.mark.parametrize(
    ("left", "tails", "offset"),
    [
        (0, [], 20),  # who has read all begins where the copy goes on, behind its markers
        (1, [[17, 18]], 18),
        (2, [[17, 18]], 17),
        (3, [[17, 18], [11, 12, 13, 17, 18]], 13),  # 14 to 16 are markers
        (9, [[17, 18], [3, 17, 18]], 3),  # the copy has lost some: none that it has is passed over
        (9, [[]], 20),
    ],
)
def test_a_group_has_as_many_records_left_in_the_copy(
    left: int, tails: list[list[int]], offset: int
) -> None:
    assert translated(left, growing(*tails), 20) == offset


def test_partitions_that_differ_are_named() -> None:
    wanted = {("t", 0): (3, 11), ("t", 1): (2, 12), ("t", 2): (1, 13)}
    found = {("t", 0): (3, 11), ("t", 1): (2, 99), ("t", 3): (1, 14)}
    assert differences(wanted, wanted) == []
    assert differences(wanted, found) == [
        {"partition": "t-1", "rows_wanted": 2, "rows_found": 2},
        {"partition": "t-2", "rows_wanted": 1, "rows_found": 0},
        {"partition": "t-3", "rows_wanted": 0, "rows_found": 1},
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (produce.Arguments(bootstrap=B, topic="t", skew=1.0), "--skew needs --keys"),
        (produce.Arguments(bootstrap=B, topic="t", keys=10**9), "must be at most 10000000"),
        (produce.Arguments(bootstrap=B, topic="t", key="k"), "are columns of --input"),
        (
            produce.Arguments(bootstrap=B, topic="t", history="h", size=8),
            "made-up rows of 16 bytes",
        ),
        (
            mirror.Arguments(bootstrap=B, to=B, topics="t", checkpoint="c"),
            "the copies need another name, by --prefix",
        ),
        (verify.Arguments(bootstrap=B, history="h"), "either --topics of a cluster, or --records"),
        (
            verify.Arguments(bootstrap=B, history="h", topics="t", records="r"),
            "either --topics of a cluster, or --records",
        ),
        (verify.Arguments(history="h", topics="t"), "--topics needs --bootstrap, or --data"),
        (compaction.Arguments(topic="t"), "give --bootstrap, or --data of a cluster"),
        (asof.Arguments(bootstrap=B, topic="t", at="noon"), "--at: offset 'noon': must be"),
        (asof.Arguments(bootstrap=B, topic="t", at="5:9"), "must be one moment, not a range"),
        (asof.Arguments(bootstrap=B, topic="t", diff_from="x"), "--diff-from: offset 'x'"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: Arguments, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("*", r"\*")):
        arguments.check()


_OF_A_TASK = """An exception was thrown from the Python worker:
org.apache.spark.SparkException: Job aborted due to stage failure
Traceback (most recent call last):
  File "reading.py", line 7, in read
tidelog.spark.loss.DataLossError: t-0: wanted offset 3, earliest there is 9
\tat org.apache.spark.Foo
"""


@pytest.mark.parametrize(
    ("error", "sentence", "code"),
    [
        (PipelineError("there is no topic 'x'", 3), "there is no topic 'x'", 3),
        (OptionError("option a=b: must be c"), "option a=b: must be c", 2),
        (UnreachableError("no broker answers"), "no broker answers: check that the cluster", 4),
        (TimedOutError("gave up"), "gave up: check that the cluster", 4),
        (Rejected(ErrorCode.GROUP_ID_NOT_FOUND, "g"), "GROUP_ID_NOT_FOUND", 1),
        (RuntimeError(_OF_A_TASK), "t-0: wanted offset 3, earliest there is 9", 1),
        (RuntimeError("odd"), "RuntimeError: odd", 1),
    ],
)
def test_every_failure_is_a_sentence_and_a_code(error: Exception, sentence: str, code: int) -> None:
    said, number = told(error)
    assert said.startswith(sentence)
    assert "SparkException" not in said
    assert number == code


@pytest.mark.parametrize(
    ("words", "sentence", "code"),
    [
        (["nothing"], "error: there is no pipeline 'nothing': there are produce, export", 2),
        (["lag", "--bootstrap=h:1"], "error: --groups must be given", 2),
        (["lag", "--bootstrap=h", "--groups=g"], "error: --bootstrap: 'h' is not host:port", 2),
        (["lag", "--bootstrap=127.0.0.1:1", "--groups=g"], "error: no broker answers", 4),
    ],
)
def test_a_program_that_cannot_begin_starts_no_session(
    words: list[str], sentence: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words[0], words[1:]) == code
    said = capsys.readouterr()
    assert said.err.startswith(sentence)
    assert said.out == ""


def test_a_cluster_that_does_not_answer_is_named_by_its_addresses() -> None:
    words = ["--bootstrap=a:1,b:2", "--to", "c:3"]
    assert _addresses(words, "gave up") == " (--bootstrap=a:1,b:2) (--to=c:3)"
    assert _addresses(words, "b:2 does not answer") == ""


@pytest.mark.parametrize("name", ["", "nope/..", "..", "x" * 250, "a b"])
def test_a_topic_that_no_cluster_can_have_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(UsageError, match="is not a valid topic name: take 1 to 249 letters"):
        check_topic_name(name)


def test_java_that_is_missing_or_too_old_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match="needs Java 17 or newer: install it"):
        check_java()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    with pytest.raises(PipelineError, match="is 11; set JAVA_HOME"):
        check_java()
    java.write_text("#!/bin/sh\necho 'openjdk version \"21\" 2023-09-19' >&2\n")
    check_java()


def test_a_signal_is_only_noted_and_the_first_one_says_the_exit_code() -> None:
    interrupts = Interrupts()
    interrupts.hold()
    interrupts.pause(0)
    assert not interrupts.asked
    interrupts.told(15, None)
    interrupts.told(2, None)
    assert (interrupts.asked, interrupts.times, interrupts.code) == (True, 2, 143)
    interrupts.pause(3_600)  # ends at once


def test_without_the_extra_the_command_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert cli.run(["pipeline", "lag", "--groups", "g", "-b", "h:1"]) == 1
    said = capsys.readouterr().err
    assert "needs pyspark and pyarrow and numpy: pip install 'tidelog[spark]'" in said
