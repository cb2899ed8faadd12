"""Metadata after a death: nobody is sent back to the dead, nor dropped with them."""

import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import FakeClient, HandlerBench
from harness.machines.peers import Peer, change, replicated, shown
from harness.processes.cluster import until
from tidelog.kernel.ids import BrokerId, Incarnation, Offset
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board, remove_memory_of_run
from tidelog.node.ipc.layout import Role, Word, slot_of
from tidelog.node.metadata.image import BrokerView, MetadataImage
from tidelog.node.runtime.neighbours import Neighbours
from tidelog.wire.frame import decode_response
from tidelog.wire.messages.k03_metadata import API, MetadataRequest
from tidelog.wire.metadata_records import StopKind

ME, OTHER = BrokerId(0), BrokerId(1)


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


def begin(bench: HandlerBench) -> FakeClient:
    client = FakeClient()
    bench.begin(client, API, 12, MetadataRequest(topics=None))
    return client


def told(client: FakeClient) -> Any:
    (frame,) = client.frames()
    return decode_response(API, 12, memoryview(frame))[1]


def test_an_answer_waits_until_it_is_decided_who_leads(bench: HandlerBench) -> None:
    peer = Peer(bench, 1)
    topic_id = replicated(bench, "t", shown(0, 1, leader=1, replicas=(0, 1)))
    bench.someone_left = True
    client = begin(bench)
    assert client.frames() == []
    change(bench, topic_id, shown(0, epoch=1, change=1, replicas=(0, 1)))
    bench.someone_left = False
    peer.fence()
    (topic,) = told(client).topics
    assert (topic.partitions[0].leader_id, topic.partitions[0].leader_epoch) == (0, 1)


def test_an_answer_does_not_wait_for_ever(bench: HandlerBench) -> None:
    """The coordinator may be down, too."""
    bench.someone_left = True
    client = begin(bench)
    bench.broker.waiting.expire(Instant(bench.now + ms(499)))
    assert client.frames() == []
    bench.broker.waiting.expire(Instant(bench.now + ms(500)))
    assert told(client).cluster_id == "cluster"


def listed(bench: HandlerBench) -> list[int]:
    return [broker.node_id for broker in told(begin(bench)).brokers]


def test_a_broker_that_left_is_listed_until_its_clients_have_moved(bench: HandlerBench) -> None:
    Peer(bench, 1).fence()
    Peer(bench, 2)
    assert listed(bench) == [0, 1, 2]
    bench.now = Instant(bench.now + ms(9_999))
    assert listed(bench) == [0, 1, 2]
    bench.now = Instant(bench.now + ms(1))
    assert listed(bench) == [0, 2]


def test_a_broker_that_was_never_seen_alive_is_not_listed(bench: HandlerBench) -> None:
    peer = Peer(bench, 1, unfenced=False)
    assert listed(bench) == [0]
    peer.unfence()
    assert listed(bench) == [0, 1]


# -- how a broker knows of a death, with real processes


@pytest.fixture
def board() -> Iterator[Board]:
    run_id = f"test{secrets.token_hex(4)}"
    with Board.create(board_name(run_id)) as made:
        yield made
    remove_memory_of_run(run_id)


def alive(incarnation: int) -> MetadataImage:
    """The image that knows of one other broker."""
    image = MetadataImage()
    image.brokers[OTHER] = BrokerView(
        id=OTHER,
        incarnation=Incarnation(incarnation),
        epoch=Offset(7),
        host="127.0.0.1",
        port=9093,
        rack=None,
        log_dirs=(),
        stopped=StopKind.FIRST_START,
        fenced=False,
    )
    return image


def process(board: Board, incarnation: int) -> int:
    """Another broker's process, which does nothing; its pid."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    writer = board.writer(slot_of(Role.BROKER, OTHER))
    writer.begin(role=Role.BROKER, process_id=OTHER, pid=pid, incarnation=Incarnation(incarnation))
    return pid


def test_a_death_is_known_before_the_metadata_tells_of_it(board: Board) -> None:
    pid = process(board, 5)
    neighbours = Neighbours(board, ME)
    image = alive(5)
    neighbours.follow(image, [OTHER])
    assert not neighbours.someone_left()
    os.kill(pid, signal.SIGKILL)
    until(neighbours.someone_left, "the death is seen")
    image.brokers[OTHER].fenced = True
    neighbours.follow(image, [OTHER])
    assert not neighbours.someone_left(), "the image knows"
    os.waitpid(pid, 0)
    neighbours.close()


def test_a_broker_that_is_given_up_counts_as_dead(board: Board) -> None:
    pid = process(board, 5)
    neighbours = Neighbours(board, ME)
    neighbours.follow(alive(5), [OTHER])
    board.fences.fence(OTHER, Offset(6))
    assert not neighbours.someone_left(), "that was an earlier life"
    board.fences.fence(OTHER, Offset(7))
    assert neighbours.someone_left()
    neighbours.close()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_another_life_than_the_image_tells_of_is_no_life(board: Board) -> None:
    pid = process(board, 6)
    neighbours = Neighbours(board, ME)
    neighbours.follow(alive(5), [OTHER])
    assert neighbours.someone_left()
    slot = board.read_slot(slot_of(Role.BROKER, OTHER))
    assert slot is not None
    assert slot[Word.PID] == pid
    neighbours.close()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
