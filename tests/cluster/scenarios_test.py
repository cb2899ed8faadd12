"""Named scenarios 5.7 to 5.9, 5.19 and of 5.21 with real processes, signals and published clients:
who leads, what that costs, and who is told. `unit/scenario_*` has the machines."""

from itertools import permutations
from pathlib import Path

import confluent_kafka
import pytest

from harness.clients.produce_raw import batch_of
from harness.processes.cluster import until
from harness.processes.stage import Stage, staged
from tidelog.kernel.ids import NO_LEADER
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import Origin

pytestmark = pytest.mark.slow

A, B, C = range(3)
Order = tuple[int, int, int]
ORDERS = list(permutations(range(3)))
PAIRS = list(zip(ORDERS, ORDERS[3:] + ORDERS[:3], strict=True))
"""Of death and of return: each of the six once."""


@pytest.mark.parametrize(("deaths", "returns"), PAIRS)
def test_crash_orders(tmp_path: Path, deaths: Order, returns: Order) -> None:
    """5.7: whoever died first may lack something, and is not elected; the next to return is, and
    takes nothing alone."""
    with staged(tmp_path, "min.insync.replicas=2") as stage:
        first, second, third = deaths
        stage.sent(b"all three")
        stage.kill(first)
        stage.until_isr(second, third)
        stage.sent(b"two of them")
        stage.kill(second)
        stage.until_isr(third)
        refused(stage, third)
        stage.kill(third)
        until(lambda: stage.view().leader == NO_LEADER, "nobody leads")
        assert set(stage.view().elr) == {second, third}
        there: set[int] = set()
        for broker in returns:
            had_leader = stage.view().leader
            stage.start(broker)
            there.add(broker)
            if not there & {second, third}:
                assert stage.view().leader == NO_LEADER
            elif had_leader == NO_LEADER:
                assert stage.until_led() == broker
                if len(there) == 1:
                    refused(stage, broker)
        stage.until_isr(A, B, C)
        stage.sent(b"again")
        stage.until_equal()
        assert stage.read() == [b"all three", b"two of them", b"again"]
        assert stage.view().lossy_elections == 0


def refused(stage: Stage, broker: int) -> None:
    """It leads, and is too much alone to take anything with acks=all."""
    stage.until_known(broker, broker)
    assert stage.code(broker, batch_of(b"no"))[0] == ErrorCode.NOT_ENOUGH_REPLICAS


def test_isr_shrink_expand(tmp_path: Path) -> None:
    """5.19: a follower that is cut off holds nobody up for long, and comes back by itself."""
    with staged(tmp_path, "min.insync.replicas=2", lag_ms=2_000) as stage:
        stage.sent(b"before")
        epoch = stage.view().partition_epoch
        stage.cut(A, C)
        stage.sent(b"meanwhile")  # answered when C is out
        assert (set(stage.view().isr), stage.view().partition_epoch) == ({A, B}, epoch + 1)
        stage.cut(A, B)
        stage.until_isr(A)
        refused(stage, A)
        waits = stage.sending(b"when it can be")
        stage.join(A, B)
        stage.join(A, C)
        assert stage.until_said(waits) == [2]
        stage.until_isr(A, B, C)
        stage.sent(b"after")
        assert stage.until_equal() == stage.seen() == "0-3:0"


def alone_has_the_rest(stage: Stage) -> None:
    """A, alone in sync, acknowledged 0-99; B has 0-59. A is dead and B is back."""
    stage.sent(*[b"%d" % number for number in range(60)])
    stage.until_log(B, "0-59:0")
    stage.kill(B)
    stage.until_isr(A)
    stage.sent(*[b"%d" % number for number in range(60, 100)])
    with stage.consumer() as reader:
        assert len(reader.take(80)) == 80
    stage.kill(A)
    until(lambda: stage.view().leader == NO_LEADER, "nobody leads")
    stage.start(B)


def test_unclean_off(tmp_path: Path) -> None:
    """5.8: the partition waits for the one that has everything; readers wait, too."""
    with staged(tmp_path, "min.insync.replicas=1", replicas=(A, B)) as stage:
        alone_has_the_rest(stage)
        assert stage.view().leader == NO_LEADER
        assert stage.fetched(B, 59).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        with stage.consumer(80) as reader:
            stage.start(A)
            assert [one.offset() for one in reader.take(20)] == list(range(80, 100))
        stage.until_isr(A, B)
        assert (stage.until_equal(), stage.view().lossy_elections) == ("0-99:0", 0)


def test_unclean_on_and_offset_out_of_range_after_rollback(tmp_path: Path) -> None:
    """5.8 and 5.9: the one that is here leads, which is counted and said aloud; a consumer that
    read what is lost is told by its epoch, also where there is something else at its offset."""
    configs = ("min.insync.replicas=1", "unclean.leader.election.enable=true")
    with staged(tmp_path, *configs, replicas=(A, B), idempotent=False) as stage:
        alone_has_the_rest(stage)
        stage.until_led(B)
        view = stage.view()
        assert view.lossy_elections == 1
        # The view is read from the log's file; the controller says it once that is committed.
        until(lambda: "lossy_election" in stage.cluster.logs(), "it is said aloud")
        stage.sent(*[b"new"] * 10)
        new = view.leader_epoch
        assert stage.log(B) == stage.seen() == f"0-59:0 60-69:{new}"
        assert "broker end offset is 60 (offset leader epoch 0)" in told(stage, 80, epoch=0)
        assert "Offset out of range" in told(stage, 80)
        assert stage.fetched(B, 80).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        stage.sent(*[b"new"] * 50)
        assert "broker end offset is 60 (offset leader epoch 0)" in told(stage, 80, epoch=0)
        assert told(stage, 80, epoch=new) == "a record"
        with stage.consumer(80, epoch=0, **{"auto.offset.reset": "earliest"}) as reader:
            assert [one.offset() for one in reader.take(60)] == list(range(60, 120))
        stage.start(A)
        stage.until_isr(A, B)
        assert stage.until_equal() == f"0-59:0 60-119:{new}"
        assert stage.cuts(A) == [(100, 60)]


def told(stage: Stage, start: int, *, epoch: int | None = None) -> str:
    """What a consumer gets which goes on from there: an error's text, perhaps."""
    with stage.consumer(start, epoch=epoch) as reader:
        said = reader.next()
    return "a record" if isinstance(said, confluent_kafka.Message) else str(said)


def test_idempotent_retry_over_failover(tmp_path: Path) -> None:
    """5.21: the leader that appended it is dead; the same batch again is the same batch."""
    with staged(tmp_path, "min.insync.replicas=2") as stage:
        batch = batch_of(b"once", origin=Origin(7, 0, 0))
        assert stage.code(A, bytearray(batch)) == (0, 0)
        stage.kill(A)
        stage.until_led(B)
        until(lambda: stage.code(B, bytearray(batch)) == (0, 0), "it is there already")
        stage.start(A)
        stage.until_isr(A, B, C)
        assert stage.until_equal() == "0-0:0"
        assert stage.read() == [b"once"]
