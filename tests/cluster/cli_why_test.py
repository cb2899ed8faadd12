"""`tidelog why` and the filters of `topic describe`, on a cluster that loses its brokers."""

import re
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster
from harness.processes.golden import Golden
from harness.processes.spoken import script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_cluster_that_loses_brokers_and_ends_tells_why_all_along(
    tmp_path: Path, golden: Golden
) -> None:
    """One story: each part begins where the one before ended."""
    with Cluster(tmp_path, brokers=3) as reef:
        what_is_missing_is_told_with_why_and_what_helps(reef, golden)
        what_cannot_be_answered_is_told(reef, golden)
        reef.stop()
        golden("cli_why_down", masked(script(reef, "why partition lone:0", "why broker 2")))


def masked(text: str) -> str:
    """Which broker registered first is another in each run."""
    return re.sub(r'(broker_epoch"?[:=] ?)[0-9]+', r"\1N", text)


def what_is_missing_is_told_with_why_and_what_helps(reef: Cluster, golden: Golden) -> None:
    text = told(
        reef,
        "topic create wide --assignment 2:1:0",
        "topic create strict --assignment 0:1:2 -c min.insync.replicas=2",
        "topic create lone --assignment 2",
        "why partition wide:0",
        "why broker 2",
        "topic describe --at-min-isr",
        "broker kill 2",
    )
    text += told(
        reef,
        "topic describe --under-replicated",
        "topic describe --unavailable",
        "topic describe --at-min-isr --under-replicated",
        "topic describe --under-min-isr",
        "why partition wide:0",
        "why partition lone:0",
        "why partition lone:0 --json",
        "why partition strict:0",
        "why broker 2 --json",
        "broker stop 1",
    )
    text += told(
        reef,
        "why partition strict:0",
        "topic describe --under-min-isr --json",
        "broker start 1 2",
        "wait isr wide strict lone",
    )
    text += told(reef, "why partition wide:0", "leader elect wide", "why partition wide:0")
    golden("cli_why_trouble", masked(text))


def told(reef: Cluster, *lines: str) -> str:
    """Once whoever a command may ask has heard of what the last one did."""
    reef.until_heard()
    return script(reef, *lines)


def what_cannot_be_answered_is_told(reef: Cluster, golden: Golden) -> None:
    text = script(
        reef,
        "why",
        "why partition",
        "why partition wid:0",
        "why partition wide:7",
        "why partition wide",
        "why broker 7",
        "why broker two",
        "why broker 1 --cluster other",
    )
    golden("cli_why_wrong_use", text)
