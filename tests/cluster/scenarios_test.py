"""Named scenarios with real processes, signals and files; `unit/scenario_*` has the machines."""

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from harness.chaos import log_bytes
from harness.cluster import Cluster, until
from harness.produce_raw import batch_of, produce_request
from harness.raw import RawClient
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Links
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k03_metadata as k03
from tidelog.wire.records import Origin

pytestmark = pytest.mark.slow

OBSERVER = 3
"""Has no replica, and always lives."""


class Stage:
    """Topic t on brokers 0, 1 and 2, of which 0 leads first."""

    def __init__(self, cluster: Cluster, *configs: str) -> None:
        self.cluster = cluster
        words = [word for config in configs for word in ("--config", config)]
        cluster.done("topic", "create", "t", "--assignment", "0:1:2", *words)
        self.board = Board.open(board_name(cluster.runs[-1].run_id))

    def send(self, broker: int, batch: bytes | bytearray, *, acks: int = -1) -> tuple[int, int]:
        """Error code and offset."""
        with RawClient(self.cluster.bootstrap.split(",")[broker]) as client:
            answer = client.ask(k00.API, 9, produce_request("t", batch, acks=acks))
        row = answer.responses[0].partition_responses[0]
        return int(row.error_code), int(row.base_offset)

    def sent(self, value: bytes) -> int:
        """The offset, by whoever leads."""
        code, offset = self.send(self.until_led(), batch_of(value))
        assert code == 0
        return offset

    def view(self) -> k03.MetadataResponsePartition:
        request = k03.MetadataRequest(
            topics=[k03.MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
        )
        with RawClient(self.cluster.bootstrap.split(",")[OBSERVER]) as client:
            (row,) = client.ask(k03.API, 12, request).topics[0].partitions
        assert isinstance(row, k03.MetadataResponsePartition)
        return row

    def until_isr(self, *brokers: int) -> None:
        until(lambda: set(self.view().isr_nodes) == set(brokers), f"in sync: {brokers}")

    def until_led(self) -> int:
        until(lambda: self.view().leader_id >= 0, "somebody leads")
        return self.view().leader_id

    def kill(self, broker: int) -> None:
        self.cluster.done("broker", "kill", str(broker))

    def start(self, broker: int) -> None:
        self.cluster.done("broker", "start", str(broker))

    def cut(self, one: int, other: int, word: int = Links.CUT) -> None:
        self.board.links.set(BrokerId(one), BrokerId(other), word)
        self.board.links.set(BrokerId(other), BrokerId(one), word)

    def check_equal(self) -> bytes:
        """All replicas, byte by byte."""

        def contents() -> set[bytes]:
            return {log_bytes(self.cluster, broker, "t", 0) for broker in range(3)}

        until(lambda: len(contents()) == 1, "the replicas are equal")
        (content,) = contents()
        return content


@pytest.fixture
def four(tmp_path: Path) -> Iterator[Cluster]:
    settings = {"replica.lag.time.max.ms": "1000"}
    with Cluster(tmp_path, brokers=4, settings=settings) as running:
        yield running


@pytest.mark.parametrize("deaths", list(permutations(range(3))))
def test_crash_orders(four: Cluster, deaths: tuple[int, int, int]) -> None:
    """5.7: whoever died first may lack something, and is not elected; the next to return is."""
    stage = Stage(four, "min.insync.replicas=2")
    first, second, third = deaths
    stage.sent(b"all three")
    stage.kill(first)
    stage.until_isr(second, third)
    stage.sent(b"two of them")
    stage.kill(second)
    stage.until_isr(third)
    until(lambda: stage.send(third, batch_of(b"no"))[0] == ErrorCode.NOT_ENOUGH_REPLICAS, "refused")
    stage.kill(third)
    until(lambda: stage.view().leader_id == -1, "nobody leads")
    stage.start(first)
    assert stage.view().leader_id == -1
    stage.start(second)
    assert stage.until_led() == second
    stage.start(third)
    stage.until_isr(0, 1, 2)
    stage.sent(b"again")
    content = stage.check_equal()
    assert all(one in content for one in (b"all three", b"two of them", b"again"))
    assert "lossy_election" not in four.logs()


def test_isr_shrink_expand(four: Cluster) -> None:
    """5.19: a follower that is cut off holds nobody up for long, and comes back by itself."""
    stage = Stage(four, "min.insync.replicas=2")
    stage.sent(b"before")
    stage.cut(0, 2)
    stage.sent(b"meanwhile")  # answered when 2 is out
    assert set(stage.view().isr_nodes) == {0, 1}
    stage.cut(0, 1)
    stage.until_isr(0)
    until(lambda: stage.send(0, batch_of(b"no"))[0] == ErrorCode.NOT_ENOUGH_REPLICAS, "refused")
    stage.cut(0, 1, 0)
    stage.cut(0, 2, 0)
    stage.until_isr(0, 1, 2)
    stage.sent(b"after")
    content = stage.check_equal()
    assert b"meanwhile" in content


def test_hw_truncation_loss(four: Cluster) -> None:
    """5.1: a restarted follower that leads at once has everything that was acknowledged."""
    stage = Stage(four, "min.insync.replicas=1")
    for number in range(20):
        stage.sent(b"acknowledged %d." % number)
    stage.kill(1)
    stage.start(1)
    stage.until_isr(0, 1, 2)
    stage.kill(2)
    stage.until_isr(0, 1)
    stage.kill(0)
    until(lambda: stage.view().leader_id == 1, "1 leads")
    assert stage.sent(b"next") == 20
    stage.start(0)
    stage.start(2)
    stage.until_isr(0, 1, 2)
    content = stage.check_equal()
    assert all(b"acknowledged %d." % number in content for number in range(20))


@pytest.mark.parametrize("allowed", [True, False])
def test_unclean(four: Cluster, *, allowed: bool) -> None:
    """5.8: who lacks something leads only where that is wanted, and it is said aloud."""
    word = str(allowed).lower()
    stage = Stage(four, "min.insync.replicas=1", f"unclean.leader.election.enable={word}")
    stage.sent(b"everywhere")
    stage.kill(2)
    stage.kill(1)
    stage.until_isr(0)
    stage.sent(b"on 0 alone")
    stage.kill(0)
    until(lambda: stage.view().leader_id == -1, "nobody leads")
    stage.start(1)
    if not allowed:
        assert stage.view().leader_id == -1
        stage.start(0)
        assert stage.until_led() == 0
        stage.start(2)
    else:
        assert stage.until_led() == 1
        until(lambda: "lossy_election" in four.logs(), "it is said aloud")
        stage.start(0)
        stage.start(2)
    stage.until_isr(0, 1, 2)
    assert (b"on 0 alone" in stage.check_equal()) != allowed


def test_idempotent_retry_over_failover(four: Cluster) -> None:
    """5.21: the leader that appended it is dead; the same batch again is the same batch."""
    stage = Stage(four, "min.insync.replicas=2")
    batch = batch_of(b"once", origin=Origin(7, 0, 0))
    assert stage.send(0, bytearray(batch)) == (0, 0)
    stage.kill(0)
    until(lambda: stage.view().leader_id == 1, "another leads")
    assert stage.send(1, bytearray(batch)) == (0, 0)
    stage.start(0)
    stage.until_isr(0, 1, 2)
    assert stage.check_equal().count(b"once") == 1
