"""Every program in the page about exactly once runs as it stands, but for the broker's address:
what it read is there once, doubled, and its group has read it all.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from harness.clients.facts import DEADLINE_S, Running
from harness.kafka.jars import need_kafka
from harness.suite.documents import blocks
from harness.suite.tidy_checks import ROOT

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs/exactly-once.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:9092"
PYTHON = [block.body for block in blocks(PAGE, "python")]
JAVA = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]


def _run(command: list[str], folder: Path, program: str, cluster: Running) -> str:
    """What the program says, whose file is the command's last word."""
    assert ADDRESS in program
    (folder / command[-1]).write_text(program.replace(ADDRESS, cluster.bootstrap))
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _committed(cluster: Running, group: str) -> list[int]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    asked = [ConsumerGroupTopicPartitions(group)]
    (done,) = admin.list_consumer_group_offsets(asked, require_stable=True).values()
    return [place.offset for place in done.result().topic_partitions]


FAILURES = {
    0: "KafkaException(__import__('confluent_kafka').KafkaError(-1, txn_requires_abort=True))",
    1: "KafkaError()",
    2: "KafkaError()",
}
"""After which a transaction is to be aborted."""
BEFORE_THE_END = ["until_known(producer.commit", "producer.commit_tr", "ends = {place: records"]


def _failing_once(number: int) -> str:
    """The program with names of its own, whose first transaction fails before its end."""
    program, place = PYTHON[number], BEFORE_THE_END[number]
    (line,) = (one for one in program.splitlines() if place in one)
    indent = line[: len(line) - len(line.lstrip())]
    more = ("attempts.append(1)", "if len(attempts) == 1:", f"    raise {FAILURES[number]}")
    program = program.replace(line, "\n".join([*(indent + one for one in more), line]))
    for name in ("levels", "doubled", "doublers", "doubler"):
        program = program.replace(f"{name}-{number + 1}", f"{name}-again-{number + 1}")
    return f"attempts: list[int] = []\n{program}"


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_the_python_programs_double_each_level_once(
    cluster: Running, tmp_path: Path, number: int
) -> None:
    command = [sys.executable, "-W", "ignore", "program.py"]
    assert _run(command, tmp_path, PYTHON[number], cluster) == "[6, 10, 8]\n"
    assert _committed(cluster, f"doublers-{number + 1}") == [3]


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_a_transaction_that_fails_is_done_again_and_nothing_of_it_is_there_twice(
    cluster: Running, tmp_path: Path, number: int
) -> None:
    command = [sys.executable, "-W", "ignore", "program.py"]
    assert _run(command, tmp_path, _failing_once(number), cluster) == "[6, 10, 8]\n"
    assert _committed(cluster, f"doublers-again-{number + 1}") == [3]


def test_the_java_program_doubles_each_level_once(cluster: Running, tmp_path: Path) -> None:
    (program,) = blocks(PAGE, "java")
    command = [*JAVA, "-cp", need_kafka(), "Doubler.java"]
    assert _run(command, tmp_path, program.body, cluster) == "[6, 10, 8]\n"
    assert _committed(cluster, "doublers-4") == [3]
