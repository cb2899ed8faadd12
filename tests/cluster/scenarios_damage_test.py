"""Named scenarios of 5.21 on damaged files and disks with real processes: what is bad reaches
nobody, who has it leads no more, and it comes back by itself."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.disks.traced import need_strace
from harness.processes.cluster import until
from harness.processes.stage import Stage, staged
from tidelog.kernel.ids import Partition
from tidelog.node.runtime.page_cache import evict
from tidelog.tools.output import VIOLATION
from tidelog.wire.checkpoints import RECOVERY_POINTS, decode_offsets, encode_offsets

pytestmark = pytest.mark.slow

A, B, C = range(3)
KEY = ("t", Partition(0))


def turn_a_byte(stage: Stage, broker: int, value: bytes) -> None:
    """In this record on this broker's disk; what the kernel knows of the file is forgotten."""
    (path,) = (stage.folder(broker) / "t-0").glob("*.log")
    at = path.read_bytes().index(value)
    with path.open("r+b", buffering=0) as file:
        file.seek(at)
        file.write(bytes([value[0] ^ 1]))
        os.fsync(file.fileno())
        evict(file.fileno(), 0, 0)


def is_well(stage: Stage, *values: bytes) -> None:
    """All in sync and equal, nothing lost, and A began anew."""
    stage.until_isr(A, B, C)
    stage.sent(b"again")
    stage.until_equal()
    assert stage.read() == [*values, b"again"]
    until(lambda: bool(stage.events("started_anew", process="broker-0")), "A begins anew")
    assert stage.view().lossy_elections == 0


@contextmanager
def failing_syncs(pid: int, folder: Path) -> Iterator[None]:
    """Every forced write of this process finds a bad disk."""
    calls = "fsync,fdatasync"
    words = ["-qq", "-f", "-e", f"trace={calls}", "-e", f"inject={calls}:error=EIO"]
    words += ["-o", str(folder / "strace"), "-p", str(pid)]
    with subprocess.Popen(["strace", *words], stderr=subprocess.DEVNULL) as strace:
        status = Path(f"/proc/{pid}/status")
        until(lambda: f"TracerPid:\t{strace.pid}\n" in status.read_text(), "strace attaches")
        try:
            yield
        finally:
            strace.send_signal(signal.SIGINT)


def test_fsync_eio_leader(tmp_path: Path) -> None:
    """A flush fails, and what the kernel says next of those pages is worth nothing: the leader ends
    at once, another leads, and what was acknowledged is on the others."""
    need_strace(tmp_path)
    with staged(tmp_path, "min.insync.replicas=2", "segment.bytes=16384") as stage:
        kept = [b"before"]
        stage.sent(*kept)
        pid = stage.pid(A)
        with failing_syncs(pid, tmp_path):
            for number in range(40):  # a full segment is flushed
                value = b"%d " % number * 500
                stage.sent(value)
                kept.append(value)
            until(lambda: not Path(f"/proc/{pid}").exists(), "it ended")
        assert stage.until_led(B, C) in {B, C}
        assert "disk_failed" in stage.cluster.logs()
        stage.until_isr(B, C)
        stage.sent(b"after")
        kept.append(b"after")
        stage.start(A)  # on another disk, so to say
        stage.until_isr(A, B, C)
        stage.until_equal()
        assert stage.read() == kept
        assert stage.view().lossy_elections == 0


def test_corrupt_leader_batch_is_found_by_who_catches_up(tmp_path: Path) -> None:
    """The leader resigns before its follower gets bad bytes, and gets the batch from the next."""
    with staged(tmp_path, "min.insync.replicas=1") as stage:
        stage.sent(b"all three")
        stage.kill(C)
        stage.until_isr(A, B)
        stage.sent(b"two of them")
        turn_a_byte(stage, A, b"two of them")
        stage.start(C)
        stage.until_led(B)
        is_well(stage, b"all three", b"two of them")


def test_corrupt_leader_batch_is_found_by_a_consumer(tmp_path: Path) -> None:
    """It gets the record all the same: from the next leader."""
    with staged(tmp_path, "min.insync.replicas=1") as stage:
        values = [b"number %d" % number for number in range(50)]
        stage.sent(*values)
        stage.kill(A)
        stage.until_led(B, C)
        stage.start(A)
        stage.until_isr(A, B, C)
        stage.kill(B, C)
        stage.until_led(A)
        stage.start(B)
        stage.start(C)
        stage.until_isr(A, B, C)
        turn_a_byte(stage, A, b"number 42")
        with stage.consumer() as reader:
            assert [one.value() for one in reader.take(50)] == values
        stage.until_led(B, C)
        is_well(stage, *values)


def test_what_chaos_corrupts_on_a_leader_reaches_no_consumer(tmp_path: Path) -> None:
    """Though the leader wrote it in this life: what has left the page cache is checked. It resigns,
    is mended by the next leader, and the others keep all they have."""
    with staged(tmp_path, "min.insync.replicas=1") as stage:
        values = [b"number %d" % number for number in range(50)]
        for value in values:
            stage.sent(value)
        words = ["chaos", "corrupt", "t:0", "--broker", str(A), "--offset", "42"]
        said = stage.cluster.done(*words, "--json").document
        assert (said["batch"]["base_offset"], said["running"]) == (42, True)
        found = stage.cluster.command("log", "verify", "t:0", "--broker", str(A))
        assert found.code == VIOLATION, found
        with stage.consumer() as reader:
            assert [one.value() for one in reader.take(50)] == values
        stage.until_led(B, C)
        is_well(stage, *values)
        assert not any(stage.cuts(broker) for broker in (B, C))
        assert stage.cluster.done("log", "verify", "t:0", "--broker", str(A)).code == 0


def test_what_chaos_cuts_off_a_stopped_replica_comes_back_from_the_others(tmp_path: Path) -> None:
    """Its own mark says how long the log was; it is not let in with less."""
    with staged(tmp_path, "min.insync.replicas=1") as stage:
        values = [b"number %d" % number for number in range(20)]
        for value in values:
            stage.sent(value)
        stage.cluster.done("broker", "stop", str(A))
        stage.until_led(B, C)
        words = ["chaos", "corrupt", "t:0", "--broker", str(A), "--how", "truncate"]
        assert not stage.cluster.done(*words, "--offset", "12", "--json").document["running"]
        found = stage.cluster.command("log", "verify", "t:0", "--broker", str(A))
        assert found.code == VIOLATION, found
        stage.cluster.done("broker", "start", str(A))
        is_well(stage, *values)
        assert not any(stage.cuts(broker) for broker in (B, C))


@pytest.mark.parametrize("is_promised", [False, True])
def test_corrupt_tail_vs_crash_tail(tmp_path: Path, *, is_promised: bool) -> None:
    """A bit of the last batch is another after a power loss. Where nobody knows that it was flushed
    it is a torn tail, which is cut; below what was flushed it is damage, and all comes anew. Either
    way `log verify` says so before, and nobody else's log gets shorter."""
    with staged(tmp_path, "min.insync.replicas=2", "flush.policy=commit") as stage:
        values = [b"number %d" % number for number in range(20)]
        for value in values:
            stage.sent(value)
        points = stage.folder(A) / RECOVERY_POINTS
        until(lambda: recovered_to(points) == len(values), "the checkpoint says what was flushed")
        stage.kill(A)
        stage.until_led(B, C)
        stage.lose_power(A, keep_bytes=len(stage.bytes(A)))
        if not is_promised:
            points.write_bytes(encode_offsets({KEY: 0}))
        words = ["chaos", "corrupt", "t:0", "--broker", str(A), "--offset", str(len(values) - 1)]
        # A bit under the batch's CRC. The epoch is not, and another one is no torn tail.
        stage.cluster.done(*words, "--seed", "1")
        found = stage.cluster.command("log", "verify", "t:0", "--broker", str(A), "--json")
        assert found.code == (VIOLATION if is_promised else 0), found
        assert found.document["violations" if is_promised else "remarks"]
        stage.start(A)
        stage.until_isr(A, B, C)
        stage.sent(b"again")
        stage.until_equal()
        assert stage.read() == [*values, b"again"]
        assert bool(stage.events("started_anew", process="broker-0")) is is_promised
        assert not any(stage.cuts(broker) for broker in (B, C))
        assert stage.view().lossy_elections == 0


def recovered_to(points: Path) -> int:
    if not points.exists():  # none was written yet
        return 0
    return decode_offsets(points.read_bytes(), place="").get(KEY, 0)
