"""Wrong requests against every handler: an answer, a closed connection, never anything else."""

import os
from pathlib import Path
from random import Random

import pytest

from harness.faults.handler_fuzz import Fuzz
from harness.machines.brokers import FakeClient, HandlerBench
from tidelog.node.api.dispatch import routes
from tidelog.node.net.client import CloseConnectionError
from tidelog.node.net.received import ReceivedBytes
from tidelog.node.net.receiver import FrameError, Receiver
from tidelog.wire.errors import ErrorCode, WireError

pytestmark = pytest.mark.slow

CASES = 2_000 if os.environ.get("HYPOTHESIS_PROFILE") == "loop" else 20_000


@pytest.mark.parametrize("seed", range(2))
def test_a_wrong_request_never_leaves_a_handler_as_a_fault(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    bench = HandlerBench(tmp_path)
    registry = routes()
    apis = [(route.api, route.versions) for route in registry.routes.values()]
    fuzz = Fuzz(apis, random)
    for name in ("one", "two"):
        fuzz.topics.append((name, bench.topic(name, partitions=2)))
    fuzz.topics.append(("keys", bench.topic("keys", cleanup_policy="compact")))
    answered = closed = 0
    for case in range(CASES):
        frame = fuzz.frame()
        client = FakeClient()
        try:
            at_once = _delivered(bench, client, frame)
        except BaseException as fault:
            fault.add_note(f"seed {seed}, case {case}: {frame.hex()}")
            raise
        answered += at_once or 0
        closed += at_once is None
        bench.broker.waiting.expire(bench.broker.waiting.deadline() or bench.now)
        while bench.link.done:
            bench.link.done.pop()(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answered += bool(client.frames())
        fuzz.sessions = [session.number for session in bench.broker.sessions]
    assert bench.failures == []
    assert bench.faults == []
    assert answered > CASES / 5
    assert closed > CASES / 20
    assert any(replica.log.end for replica in bench.broker.replicas), "it wrote nothing"


def _delivered(bench: HandlerBench, client: FakeClient, frame: bytes) -> int | None:
    """How many answers came at once; None where the connection was to end."""
    try:
        return _deliver(bench, client, frame)
    except (WireError, CloseConnectionError, FrameError):
        return None


def _deliver(bench: HandlerBench, client: FakeClient, frame: bytes) -> int:
    """As a connection does it; how many answers came at once."""
    receiver = Receiver(1 << 20, ReceivedBytes().open(lambda: None, lambda: None, lambda: 0))
    answers = 0
    while frame:
        room = receiver.room()
        part = frame[: len(room)]
        room[: len(part)] = part
        receiver.received(len(part))
        frame = frame[len(part) :]
        while not client.session.in_flight and (one := receiver.next_frame()) is not None:
            bench.dispatcher.begin(client, one, bench.now)
            answers += len(client.frames())
    return answers
