"""Runs a program: reads its arguments, makes its session, turns what goes wrong into a sentence."""

import importlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidelog.clients.failures import ClientError, TimedOutError, UnreachableError
from tidelog.spark.options import OptionError
from tidelog.spark.pipelines.arguments import Arguments, parse
from tidelog.spark.pipelines.ending import Ending, run_to_the_end
from tidelog.spark.pipelines.failures import (
    FAILED,
    UNREACHABLE,
    WRONG_USAGE,
    PipelineError,
    UsageError,
)
from tidelog.spark.pipelines.interrupts import INTERRUPTS
from tidelog.spark.pipelines.output import note, progress_ends
from tidelog.spark.pipelines.topics import connect
from tidelog.spark.sessions import session
from tidelog.wire.errors import Rejected

NAMES = ("produce", "export", "replay", "mirror", "verify", "asof", "lag", "compaction")
JAVA_MIN = 17
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
_VERSION = re.compile(r'version "([0-9]+)')
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z]\w*(?:Error|Exception)): (.+)$", re.MULTILINE)

_CHECKPOINT = {"tidelog.initialOffsets": "--checkpoint"}
_OWN_NAMES: Mapping[str, Mapping[str, str]] = {
    "mirror": {"tidelog.sink.id": "--name", **_CHECKPOINT},
    "export": _CHECKPOINT,
    "replay": {"tidelog.job.id": "--job-id"},
}
"""Options of the data source in what it says of an error, and which of a program's set them."""


def run(name: str, words: Sequence[str]) -> int:
    """The exit code; every way to fail has said its sentence."""
    return run_to_the_end(partial(_finished, name, words))


def _finished(name: str, words: Sequence[str], ending: Ending) -> int:
    try:
        return _run(name, words, ending)
    except Exception as error:  # noqa: BLE001 -- the edge: everything becomes a sentence and a code
        if INTERRUPTS.asked:
            return INTERRUPTS.code  # whatever was broken off has failed
        sentence, code = told(error)
        if code == UNREACHABLE:
            sentence += _addresses(words, sentence)
        for option, own in _OWN_NAMES.get(name, {}).items():
            sentence = sentence.replace(option, own)
        progress_ends()
        note(f"error: {' '.join(sentence.split())}")
        return code


def _addresses(words: Sequence[str], sentence: str) -> str:
    """Those that were given, if the sentence names none of them."""
    text = " ".join(words)
    given = re.findall(r"(--(?:bootstrap|to))[= ](\S+)", text)
    if any(one in sentence for _, value in given for one in value.split(",")):
        return ""
    return "".join(f" ({option}={value})" for option, value in given)


def _run(name: str, words: Sequence[str], ending: Ending) -> int:
    if name not in NAMES:
        raise UsageError(f"there is no pipeline {name!r}: there are {', '.join(NAMES)}")
    program: Any = importlib.import_module(f"tidelog.spark.pipelines.{name}")
    arguments: Arguments = parse(program.Arguments, words)
    arguments.check()
    if arguments.bootstrap:
        arguments.look(connect(arguments.bootstrap))
    try:
        code: int = program.main(ending.started(partial(_session, name, arguments)), arguments)
        return code
    finally:
        ending.stop()


def _session(name: str, arguments: Arguments) -> SparkSession:
    conf = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    for one in arguments.conf:
        key, equals, value = one.partition("=")
        if not equals:
            raise UsageError(f"--conf {one}: must be NAME=VALUE")
        conf[key] = value
    if _SUBMITTED in os.environ:
        # Whoever submits a program has said where it runs.
        from pyspark import SparkConf  # noqa: PLC0415 -- reads the JVM's, which is there only here

        return session(SparkConf().get("spark.master", arguments.master), app=name, conf=conf)
    check_java()
    return session(arguments.master, app=f"tidelog {name}", conf=conf)


def check_java() -> None:
    """Spark's own words for a missing Java are a page long."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin/java") if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise PipelineError(f"Spark needs Java {JAVA_MIN} or newer: install it, or set JAVA_HOME")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603 -- the user's own
    version = _VERSION.search(said)
    if version is not None and int(version[1]) < JAVA_MIN:
        raise PipelineError(
            f"Spark needs Java {JAVA_MIN} or newer: {java} is {version[1]}; set JAVA_HOME"
        )


def told(error: Exception) -> tuple[str, int]:
    """A sentence, and the exit code."""
    match error:
        case PipelineError():
            return str(error), error.code
        case OptionError():
            return str(error), WRONG_USAGE
        case UnreachableError() | TimedOutError():
            return (
                f"{error}: check that the cluster runs and that --bootstrap is right",
                UNREACHABLE,
            )
        case ClientError() | Rejected():
            return str(error), FAILED
        case _:
            return _of_spark(str(error)) or f"{type(error).__name__}: {error}", FAILED


def _of_spark(text: str) -> str | None:
    """Spark wraps what a task raises in pages: the innermost error of Python says it."""
    found = [
        (kind, said)
        for kind, said in _RAISED.findall(text)
        if kind not in {"SparkException", "PythonException", "Py4JJavaError"}
    ]
    return found[-1][1] if found else None
