"""Named scenarios 5.2, 5.10, 5.11 and of 5.21 with real processes, files and published clients:
what a broker finds on its disk after a power loss, or does not, and who believes it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
import zmq
from msgspec.structs import replace

from harness.processes.cluster import until
from harness.processes.stage import TOPIC, Stage, staged
from tidelog.kernel.ids import NO_LEADER, BrokerId, Incarnation
from tidelog.kernel.launch import board_name, coordinator_endpoint
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.coordinator_link import peer_name
from tidelog.node.ipc.layout import Role, Word
from tidelog.wire.checkpoints import HIGH_WATERMARKS
from tidelog.wire.control import AlterIsr, IsrAltered, IsrChange, decode_to_broker, encode
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow

A, B, C = range(3)
CALL = 1 << 40
"""A number that no broker gives to a call."""
ANSWER_WITHIN_MS = 10_000
TEN = [b"%d" % number for number in range(10)]


def test_hw_truncation_divergence(tmp_path: Path) -> None:
    """5.2, KIP-101 and 966: after both lost power neither leads before the other is back; then
    the one that has more."""
    with staged(tmp_path, "min.insync.replicas=2", replicas=(A, B)) as stage:
        stage.sent(b"m0")
        synced = len(stage.bytes(B))
        stage.sent(b"m1")
        whole = len(stage.bytes(A))
        stage.kill(A, B)
        stage.lose_power(A, keep_bytes=whole)
        stage.lose_power(B, keep_bytes=synced)
        stage.start(B)
        assert (stage.log(B), stage.view().leader) == ("0-0:0", NO_LEADER)
        stage.start(A)
        assert stage.until_led() == A
        stage.until_isr(A, B)
        assert stage.until_equal() == stage.seen() == "0-1:0"
        assert stage.read() == [b"m0", b"m1"]
        assert stage.view().lost_records == 0


def test_last_replica_standing(tmp_path: Path) -> None:
    """5.10, KIP-966: the last one in sync lost power; the eligible one leads, and nothing is lost
    though no record was ever flushed."""
    with staged(tmp_path, "min.insync.replicas=2") as stage:
        stage.sent(*TEN * 9)
        stage.until_log(C, "0-89:0")
        synced = len(stage.bytes(C))
        stage.kill(A)
        stage.until_isr(B, C)
        stage.sent(*TEN)
        stage.kill(B)
        stage.until_isr(C)
        assert stage.view().elr == (B,)
        stage.kill(C)
        stage.lose_power(C, keep_bytes=synced)
        stage.start(C)
        view = stage.view()
        assert (stage.log(C), view.leader, view.isr, view.elr) == ("0-89:0", NO_LEADER, (), (B,))
        stage.start(B)
        assert stage.until_led() == B
        stage.until_isr(B, C)
        stage.start(A)
        stage.until_isr(A, B, C)
        assert stage.until_equal() == stage.seen() == "0-89:0 90-99:1"
        assert stage.view().lossy_elections == 0


def test_stale_alter_partition(tmp_path: Path) -> None:
    """5.11, KIP-903: a leader's proposal that was held up names a life of B that is over; what B
    has now is another disk, an empty one."""
    with staged(tmp_path, "min.insync.replicas=1", replicas=(A, B)) as stage:
        stage.sent(*TEN)
        image, view = stage.image(), stage.view()
        stage.kill(B)
        stage.until_isr(A)
        shutil.rmtree(stage.folder(B).parent)
        stage.cut(A, B)
        stage.start(B)
        before, now = stage.view(), stage.image()
        assert now.brokers[BrokerId(B)].epoch > image.brokers[BrokerId(B)].epoch
        a, b = (BrokerId(A), now.brokers[BrokerId(A)].epoch), BrokerId(B)
        held = IsrChange(
            now.names[TOPIC].id,
            0,
            before.leader_epoch,
            before.partition_epoch,
            (a, (b, image.brokers[b].epoch)),
        )
        late = replace(
            held, partition_epoch=view.partition_epoch, isr=(a, (b, now.brokers[b].epoch))
        )
        with in_the_name_of(stage, A) as says:
            assert proposed(stage, says, held) == ErrorCode.INELIGIBLE_REPLICA
            assert proposed(stage, says, late) == ErrorCode.INVALID_UPDATE_VERSION
        assert stage.view() == before
        stage.join(A, B)
        stage.until_isr(A, B)
        assert stage.until_equal() == stage.seen() == "0-9:0"


@contextmanager
def in_the_name_of(stage: Stage, broker: int) -> Iterator["zmq.Socket[bytes]"]:
    """The coordinator takes what is said here for the broker's; that is cut off by it, and a
    coordinator of the next life hears it again."""
    run = stage.cluster.runs[-1]
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.set(zmq.LINGER, 0)
        dealer.set(zmq.RCVTIMEO, ANSWER_WITHIN_MS)
        life = stage.image().brokers[BrokerId(broker)].incarnation
        dealer.set(zmq.IDENTITY, peer_name(BrokerId(broker), life))
        dealer.connect(coordinator_endpoint(run.runtime_dir))
        yield dealer
    stage.kill_coordinator()


def proposed(stage: Stage, says: "zmq.Socket[bytes]", change: IsrChange) -> ErrorCode:
    """What becomes of it."""
    with Board.open(board_name(stage.cluster.runs[-1].run_id)) as board:
        slot = board.read_slot(Role.COORDINATOR)
    assert slot is not None
    says.send(encode(AlterIsr(Incarnation(slot[Word.INCARNATION]), CALL, (change,))))
    while True:
        answer = decode_to_broker(says.recv())
        if isinstance(answer, IsrAltered) and answer.call == CALL:
            (outcome,) = answer.outcomes
            return outcome


@pytest.mark.parametrize("content", [None, b"", b"0\n1\n"])
def test_checkpoint_lost(tmp_path: Path, content: bytes | None) -> None:
    """5.21: without a high watermark everything is kept, and nothing is shown too early."""
    with staged(tmp_path, "min.insync.replicas=2") as stage:
        stage.sent(*TEN)
        stage.until_log(B, "0-9:0")
        stage.kill(B)
        path = stage.folder(B) / HIGH_WATERMARKS
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        stage.cut(A, B)
        stage.start(B)
        assert (stage.log(B), stage.fetched(B).high_watermark) == ("0-9:0", 0)
        stage.join(A, B)
        stage.until_isr(A, B, C)
        stage.kill(A)
        stage.until_led(B)
        assert stage.seen() == "0-9:0"
        assert stage.cuts(B) == []


def test_retention_passes_follower_and_full_truncation_hw(tmp_path: Path) -> None:
    """5.21, KAFKA-9491: who ends below the leader's first record starts anew there; its high
    watermark is not stuck, though it leads next."""
    with staged(tmp_path, "min.insync.replicas=1") as stage:
        stage.sent(*TEN)
        stage.until_log(B, "0-9:0")
        stage.kill(B)
        stage.until_isr(A, C)
        stage.sent(*TEN * 5)
        place = confluent_kafka.TopicPartition(TOPIC, 0, 50)
        admin = stage.new_admin()
        (deleted,) = admin.delete_records([place]).values()
        assert deleted.result(10).low_watermark == 50
        stage.start(B)
        stage.until_isr(A, B, C)
        assert stage.events("started_anew", process="broker-1")
        stage.kill(A, C)
        stage.until_led(B)
        assert stage.sent(b"next") == [60]
        with stage.consumer(50) as reader:
            assert [one.offset() for one in reader.to_the_end()] == list(range(50, 61))
        with stage.consumer(10) as reader:
            said = reader.next()
        assert isinstance(said, confluent_kafka.KafkaError)
        assert said.code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET


def test_topic_recreated(tmp_path: Path) -> None:
    """5.21: records of the topic that had the name before meet nobody's of the new one."""
    with staged(tmp_path, "min.insync.replicas=2") as stage:
        stage.sent(*TEN)
        stage.until_log(B, "0-9:0")
        stage.kill(B)
        stage.until_isr(A, C)
        admin = stage.new_admin()
        admin.delete_topics([TOPIC])[TOPIC].result(10)
        stage.create_topic("min.insync.replicas=2")
        until(lambda: stage.sent_to_leader(b"new") == [0], "the new one takes records")
        stage.start(B)
        stage.until_isr(A, B, C)
        assert stage.until_equal() == "0-0:0"
        assert stage.read() == [b"new"]
