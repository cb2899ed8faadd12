"""What other users of the machine, and other processes of this one, can do to a running cluster."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from harness.processes.cluster import Cluster, until
from harness.processes.other_user import OTHER_UID, needs_root
from tidelog.kernel.ids import NO_OFFSET, BrokerId, Incarnation
from tidelog.kernel.launch import MEMORY_FOLDER, board_name, broker_ledger, ledger_name, ring_name
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Role, Word, slot_of
from tidelog.node.ipc.two_ways import Sent
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.wire import control, replication, transactions
from tidelog.wire.metadata_records import StopKind

pytestmark = pytest.mark.slow

NOISE = (b"", b"\0", b"garbage", b"\xff" * 5_000, b"TIDE" * 20)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"default.replication.factor": "2"}
    with Cluster(tmp_path_factory.mktemp("pair"), brokers=2, settings=settings) as cluster:
        yield cluster


def incarnation(cluster: Cluster, broker: int) -> int:
    with Board.open(board_name(cluster.runs[-1].run_id)) as board:
        slot = board.read_slot(slot_of(Role.BROKER, broker))
        assert slot is not None
        return slot[Word.INCARNATION]


def written_and_read(cluster: Cluster, topic: str) -> None:
    """By all replicas."""
    cluster.done("topic", "create", topic, "-r", "2", "-p", "4")
    cluster.done("produce", topic, text="one\ntwo\n")
    read = cluster.done("consume", topic, "-n", "2").out
    assert sorted(read.split()) == ["one", "two"]


def test_other_users_can_open_nothing_of_a_cluster(pair: Cluster) -> None:
    written_and_read(pair, "private")
    run = pair.runs[-1]
    runtime = Path(run.runtime_dir)
    assert runtime.stat().st_mode & 0o777 == 0o700
    paths = [pair.data, *pair.data.rglob("*")]
    paths += Path(MEMORY_FOLDER).glob(f"tidelog-{run.run_id}-*")
    assert [str(path) for path in paths if path.lstat().st_mode & 0o077] == []


def test_noise_on_the_sockets_of_a_cluster_ends_no_process(pair: Cluster) -> None:
    pids = {row["role"] + str(row["id"]): row["pid"] for row in pair.status()["processes"]}
    context = zmq.Context()
    for path in filter(Path.is_socket, sorted(Path(pair.runs[-1].runtime_dir).iterdir())):
        if path.name.startswith("short-"):
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as short:
                for noise in NOISE:
                    short.sendto(noise, str(path))
            continue
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(path))
            stream.sendall(NOISE[3])
        kind = zmq.PUSH if path.name.startswith("broker-") else zmq.DEALER
        with context.socket(kind) as sender:
            sender.connect(f"ipc://{path}")
            for noise in NOISE:
                sender.send(noise)
                sender.send_multipart([noise, noise, noise])
            sender.close(linger=500)
    context.term()
    written_and_read(pair, "after-noise")
    assert {row["role"] + str(row["id"]): row["pid"] for row in pair.status()["processes"]} == pids
    assert "crashed" not in pair.logs()


def test_a_broker_that_the_cluster_cannot_have_is_heard_by_nobody(pair: Cluster) -> None:
    run = pair.runs[-1]
    cluster_id = pair.status()["cluster_id"]
    stranger = BrokerId(265)
    register = control.Register(
        session=1,
        cluster_id=cluster_id,
        broker=stranger,
        incarnation=Incarnation(1),
        host="localhost",
        port=1,
        rack=None,
        log_dirs=(),
        stopped=StopKind.KILLED,
        applied=NO_OFFSET,
    )
    hello = transactions.Hello(1, cluster_id, stranger, Incarnation(1))
    head = replication.Head(stranger, Incarnation(1), Incarnation(0), 1)
    attach = b"".join(map(bytes, replication.encode(head, [(replication.Open(NO_OFFSET), None)])))
    frames = {
        "coordinator": (zmq.DEALER, control.encode(register)),
        "transactions": (zmq.DEALER, control.encode(hello)),
        "broker-0": (zmq.PUSH, attach + Sent(stranger, 1).pipe_stamp()),
        "broker-1": (zmq.PUSH, attach + Sent(BrokerId(0), 1).pipe_stamp()),
    }
    context = zmq.Context()
    for name, (kind, frame) in frames.items():
        with context.socket(kind) as sender:
            sender.connect(f"ipc://{run.runtime_dir}/{name}")
            sender.send(frame)
            sender.close(linger=500)
    context.term()
    written_and_read(pair, "after-stranger")
    assert {row["state"] for row in pair.status()["processes"]} == {"running"}
    assert "crashed" not in pair.logs()
    assert stranger not in open_folder(pair.data).image.brokers


@needs_root
def test_names_that_another_user_has_taken_end_no_broker(pair: Cluster) -> None:
    run = pair.runs[-1].run_id
    pair.done("broker", "stop", "1")
    lives = range(incarnation(pair, 0), incarnation(pair, 0) + 10)
    names = [
        ring_name(run, BrokerId(broker), Incarnation(life), number)
        for broker in (0, 1)
        for life in lives
        for number in range(20)
    ]
    names += [ledger_name(run, broker_ledger(broker), part) for broker in (0, 1) for part in (1, 2)]
    taken = [Path(MEMORY_FOLDER + name) for name in names]
    taken = [path for path in taken if not path.exists()]
    for path in taken:
        path.write_bytes(b"x")
        os.chown(path, OTHER_UID, OTHER_UID)
    try:
        pair.done("broker", "start", "1")
        pair.done("wait", "ready")
        written_and_read(pair, "after-names")
        rings = [p.name for p in Path(MEMORY_FOLDER).glob(f"tidelog-{run}-ring-*~*")]
        assert rings != []
        pair.stop()
        until(lambda: not pair.pids(), "all processes are gone")
        left = {*Path(MEMORY_FOLDER).glob(f"tidelog-{run}-*")}
        assert left == {*taken}
        assert "crashed" not in pair.logs()
        pair.start()
    finally:
        for path in taken:
            path.unlink(missing_ok=True)
