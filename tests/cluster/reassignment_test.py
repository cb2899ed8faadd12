"""Named scenario 5.17 with real processes: replicas move under load while the coordinator is killed
at each step; and Kafka's own tool moves them, throttled, and thinks better of it."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from harness.clients.kafka_python import KafkaPython
from harness.clients.kafka_tools import KafkaTools
from harness.clients.raw_socket import RawClient
from harness.faults.chaos import Load, wrong_in_the_end
from harness.processes.cluster import until
from harness.processes.stage import TOPIC, Stage, staged
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k45_alter_partition_reassignments as k45
from tidelog.wire.metadata_records import PartitionView

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

A, B, C, D = range(4)
MANY = 200
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
CONFIGS = "kafka.admin.ConfigCommand"


def reassign(stage: Stage, *replicas: int) -> list[int]:
    """To these, or to none: what is under way is cancelled. The codes that a broker answers."""
    row = k45.ReassignablePartition(partition_index=0, replicas=[*replicas] or None)
    topics = [k45.ReassignableTopic(name=TOPIC, partitions=[row])]
    request = k45.AlterPartitionReassignmentsRequest(timeout_ms=5_000, topics=topics)
    with RawClient(stage.address(D)) as client:
        answer = client.ask(k45.API, 1, request)
    return [answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)]


def holders(stage: Stage) -> set[int]:
    """Who has files of it; what is on its way out bears another name."""
    return {one for one in range(4) if (stage.folder(one) / f"{TOPIC}-0").exists()}


def placement(stage: Stage) -> tuple[tuple[int, ...], set[int], set[int]]:
    view = stage.view()
    return view.replicas, set(view.adding), set(view.removing)


def until_settled_on(stage: Stage, *replicas: int) -> PartitionView:
    def is_so() -> bool:
        view = stage.view()
        return view.replicas == replicas and not view.is_moving and set(view.isr) == {*replicas}

    until(is_so, f"replicas {replicas}, in sync; not {stage.view()}")
    until(lambda: holders(stage) == {*replicas}, "the files are where the replicas are")
    stage.cluster.until_heard()
    return stage.view()


def coordinator(stage: Stage) -> int:
    pid = stage.cluster.process("coordinator")["pid"]
    assert isinstance(pid, int)
    return pid


@contextmanager
def killed_coordinator(stage: Stage, *, frozen: bool = False) -> Iterator[None]:
    """SIGKILL behind this block, in which it may be frozen already; until another one decides. One
    that is frozen for long is killed by the supervisor, too."""
    pid, epoch = coordinator(stage), stage.image().controller_epoch
    if frozen:
        os.kill(pid, signal.SIGSTOP)
    yield
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    until(lambda: stage.image().controller_epoch > epoch, "the next coordinator has taken over")


@contextmanager
def loaded(stage: Stage, *replicas: int) -> Iterator[Load]:
    """Nothing is refused meanwhile, and in the end all is on these, once, and equal."""
    with Load(stage.cluster.bootstrap, TOPIC, 1, "load") as load:
        load.wait_for_more(MANY)
        yield load
        load.wait_for_more(MANY)
    stage.until_isr(*replicas)
    stage.cluster.stop()
    assert wrong_in_the_end(stage.cluster, TOPIC, 1, [load], replicas) == []


MOVING = ((B, C, D, A), {D}, {A})


def test_controller_failover_mid_reassign(tmp_path: Path) -> None:
    """5.17: A, B, C become B, C, D, and the coordinator is killed at each step of it."""
    with staged(tmp_path, "min.insync.replicas=2") as stage, loaded(stage, B, C, D) as load:
        killed_before_the_first_record(stage, load)
        epoch = stage.view().leader_epoch
        killed_when_it_is_on_disk(stage, load)
        killed_before_the_last_record(stage, load)
        assert (stage.view().leader, stage.view().leader_epoch) == (B, epoch + 1)
        killed_when_that_is_on_disk(stage)
        cancelled_in_the_middle(stage)


def killed_before_the_first_record(stage: Stage, load: Load) -> None:
    """(1) Nothing has changed. The next one is asked again where it comes soon enough, and decides
    it then; a cancel finds it under way or not, as was answered."""
    before, epoch = placement(stage), stage.image().controller_epoch
    stage.cut(A, D)
    codes: list[int] = []
    asking = threading.Thread(target=lambda: codes.extend(reassign(stage, B, C, D)))
    with killed_coordinator(stage, frozen=True):
        asking.start()
        load.wait_for_more(MANY)
        now = placement(stage)
        assert now == before == ((A, B, C), set(), set()) or stage.image().controller_epoch > epoch
    asking.join()
    done, nothing = [0, 0], [0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]
    decided = {
        ErrorCode.NONE: (done,),
        ErrorCode.NOT_CONTROLLER: (nothing,),
        ErrorCode.REQUEST_TIMED_OUT: (done, nothing),
    }
    (code,) = set(codes)
    stage.cluster.done("wait", "ready")
    assert reassign(stage) in decided[ErrorCode(code)]
    replicas, coming, going = placement(stage)
    assert ({*replicas}, coming, going, stage.view().leader) == ({A, B, C}, set(), set(), A)


def killed_when_it_is_on_disk(stage: Stage, load: Load) -> None:
    """(2) The next one goes on."""
    stage.cut(A, D)
    assert reassign(stage, B, C, D) == [0, 0]
    with killed_coordinator(stage):
        assert placement(stage) == MOVING
    load.wait_for_more(MANY)
    assert placement(stage) == MOVING


def killed_before_the_last_record(stage: Stage, load: Load) -> None:
    """(3) A keeps what it has until somebody has decided, and proposes it again."""
    with killed_coordinator(stage, frozen=True):
        stage.join(A, D)
        until(lambda: len(stage.bytes(D)) > 0, "D follows")
        load.wait_for_more(1)
        have = holders(stage)
        assert A in have or placement(stage) != MOVING
    until_settled_on(stage, B, C, D)


def killed_when_that_is_on_disk(stage: Stage) -> None:
    """(4) A has not heard of it: its files go when it does."""
    assert reassign(stage, A, B, C, D) == [0, 0]
    until_settled_on(stage, A, B, C, D)
    stage.pause(A)
    stage.until_isr(B, C, D)
    assert reassign(stage, B, C, D) == [0, 0]
    with killed_coordinator(stage):
        assert placement(stage) == ((B, C, D), set(), set())
    assert A in holders(stage)
    stage.resume(A)
    until_settled_on(stage, B, C, D)


def cancelled_in_the_middle(stage: Stage) -> None:
    """As kafka-python asks for it, the one published client in Python that can."""
    stage.cut(B, A)
    client = KafkaPython(stage.cluster.bootstrap)
    assert client.reassign(TOPIC, 0, [A, B, C])
    assert client.reassigned(TOPIC, 0) == {
        "replicas": [A, B, C, D],
        "adding_replicas": [A],
        "removing_replicas": [D],
    }
    assert client.reassign(TOPIC, 0, None)
    assert client.reassigned(TOPIC, 0) is None
    stage.join(B, A)
    until_settled_on(stage, B, C, D)
    assert reassign(stage) == [0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS]


def ours(stage: Stage, *words: str) -> Any:
    """What our own command says: it reads Kafka's plans, and Kafka's tool reads its."""
    return stage.cluster.done("partition", "reassign", *words).document


def plan(path: Path, *replicas: int) -> str:
    row = {
        "topic": TOPIC,
        "partition": 0,
        "replicas": replicas,
        "log_dirs": ["any"] * len(replicas),
    }
    path.write_text(json.dumps({"version": 1, "partitions": [row]}))
    return str(path)


def test_kafka_reassign_partitions_moves_throttles_verifies_lists_and_cancels(
    tmp_path: Path,
) -> None:
    with (
        staged(tmp_path, "min.insync.replicas=2") as stage,
        KafkaTools(stage.cluster.bootstrap) as tools,
        loaded(stage, C, D, B),
    ):
        away, back = plan(tmp_path / "away.json", B, C, D), plan(tmp_path / "back.json", C, D, B)
        stage.cut(A, D)
        said = tools.tool(
            REASSIGN, "--execute", "--reassignment-json-file", away, "--throttle", "1000000"
        )
        assert "The inter-broker throttle limit was set to 1000000 B/s" in said
        assert f"Successfully started partition reassignment for {TOPIC}-0" in said
        topic = stage.image().names[TOPIC].configs
        assert topic["leader.replication.throttled.replicas"] == "0:0,0:1,0:2"
        assert topic["follower.replication.throttled.replicas"] == "0:3"

        listed = tools.tool(REASSIGN, "--list")
        assert f"{TOPIC}-0: replicas: 1,2,3,0. adding: 3. removing: 0." in listed
        verified = tools.tool(REASSIGN, "--verify", "--reassignment-json-file", away)
        assert f"Reassignment of partition {TOPIC}-0 is still in progress." in verified
        followed = ours(stage, "status", "--plan", away, "--json")
        (row,) = followed["reassignments"]
        assert (followed["throttle"], row["state"], row["adding"]) == (1_000_000, "moving", [D])

        cancelled = tools.tool(
            REASSIGN, "--cancel", "--reassignment-json-file", away, "--preserve-throttles"
        )
        assert f"Successfully cancelled partition reassignment for: {TOPIC}-0" in cancelled
        stage.join(A, D)
        until_settled_on(stage, B, C, A)

        words = ("--reassignment-json-file", back, "--throttle", "50000000", "--additional")
        tools.tool(REASSIGN, "--execute", *words)
        until_settled_on(stage, C, D, B)
        verified = tools.tool(REASSIGN, "--verify", "--reassignment-json-file", back)
        assert f"Reassignment of partition {TOPIC}-0 is completed." in verified
        assert "leader.replication.throttled.replicas" not in stage.image().names[TOPIC].configs
        assert not any(
            "throttled" in name for one in stage.image().broker_configs.values() for name in one
        )
        assert "No partition reassignments found." in tools.tool(REASSIGN, "--list")

        proposal = tmp_path / "ours.json"
        proposal.write_text(json.dumps(ours(stage, "plan", "--brokers", f"{B},{C},{D}")))
        assert json.loads(proposal.read_text())["partitions"] == []
        proposal.write_text(json.dumps(ours(stage, "plan", "--brokers", f"{A},{B},{C}")))
        verified = tools.tool(REASSIGN, "--verify", "--reassignment-json-file", str(proposal))
        assert (
            f"There is no active reassignment of partition {TOPIC}-0, but replica set" in verified
        )
