"""Page-cache policies of a running broker: bounds under load, changed while it runs, readers."""

import threading

import pytest

from harness.clients.fetch_raw import fetch_all, fetch_once
from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.disks.real_pages import need_cachestat, need_disk
from harness.processes.cluster import Cluster, until
from tidelog.kernel.launch import board_name
from tidelog.kernel.limits import MIB
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Role, Slot, Word, slot_of
from tidelog.tools.disk_look import Wanted, look
from tidelog.tools.disk_view import Replica, Sums, sums
from tidelog.tools.log_files.data_folder import open_folder

pytestmark = pytest.mark.slow

BATCH = MIB // 2
BOUND = 4 * MIB
SEGMENT = 2 * MIB
FOLIO = MIB // 4
"""About what the kernel keeps together."""
SLACK = 64 * MIB
"""What the disk may have taken between two looks, however slow they are."""


@pytest.fixture(scope="module")
def machine(cluster: Cluster) -> Cluster:
    need_disk(cluster.data)
    need_cachestat(cluster.data)
    return cluster


def slot(cluster: Cluster) -> Slot:
    with Board.open(board_name(cluster.runs[-1].run_id)) as board:
        found = board.read_slot(slot_of(Role.BROKER, 0))
    assert found is not None
    return found


def replica(cluster: Cluster, topic: str) -> Replica:
    """As `tidelog disk` sees it."""
    (broker,) = look(open_folder(cluster.data), Wanted(topic=topic))
    (found,) = broker.replicas
    return found


def seen(cluster: Cluster, topic: str) -> Sums:
    return sums(replica(cluster, topic).segments)


def cached(cluster: Cluster, topic: str) -> int:
    found = seen(cluster, topic).cached
    assert found is not None
    return found


def fill(cluster: Cluster, topic: str, size: int) -> None:
    with RawClient(cluster.bootstrap) as client:
        for _ in range(size // BATCH):
            assert produce(client, topic, batch_of(bytes(BATCH))).error_code == 0


def test_the_bound_of_a_tail_holds_under_load_and_from_when_it_is_set(machine: Cluster) -> None:
    topic = machine.create_topic(configs={"segment.bytes": str(SEGMENT)})
    fill(machine, topic, 24 * MIB)
    assert cached(machine, topic) > 20 * MIB, "all is left to the kernel"
    machine.done("config", "set", "topic", topic, f"cache.max.bytes={BOUND}", "cache.keep=tail")
    until(lambda: cached(machine, topic) <= BOUND, "what is too much goes")
    filler = threading.Thread(target=fill, args=(machine, topic, 96 * MIB))
    filler.start()
    most = 0
    while filler.is_alive():
        now = seen(machine, topic)
        most = max(most, (now.cached or 0) - (now.dirty or 0))
    filler.join()
    assert most <= BOUND + SLACK, "what is not on the disk yet stays, all else goes"
    until(lambda: cached(machine, topic) <= BOUND, "the bound")
    segments = replica(machine, topic).segments
    assert (segments[0].cached or 0) <= FOLIO, "pages that were in use just then stay"
    assert segments[-1].cached == segments[-1].size, "the newest bytes stay"
    until(lambda: 0 < slot(machine)[Word.HELD] <= BOUND, "the board tells what is held")
    assert slot(machine)[Word.DROPPED] > 20 * MIB
    with RawClient(machine.bootstrap) as client:
        rows = fetch_once(client, topic, 0)
    assert [row.offset for row in rows] == list(range(len(rows)))
    assert rows, "what was dropped is read from the disk"


def test_what_is_appended_is_given_to_the_disk_and_stays_in_memory(machine: Cluster) -> None:
    topic = machine.create_topic(configs={"cache.writeback.bytes": str(MIB)})
    before = slot(machine)[Word.WRITTEN_BACK]
    fill(machine, topic, 16 * MIB)
    until(lambda: (seen(machine, topic).dirty or 0) <= 2 * MIB, "the kernel is not asked")
    found = seen(machine, topic)
    assert found.cached == found.size
    assert found.unflushed == found.size, "nothing of it counts as durable"
    until(lambda: slot(machine)[Word.WRITTEN_BACK] - before >= 14 * MIB, "the board tells it")


@pytest.mark.parametrize("way", ["pread", "mmap"])
def test_consumers_are_served_in_each_way_that_the_broker_is_told(
    machine: Cluster, way: str
) -> None:
    topic = machine.create_topic()
    fill(machine, topic, 4 * MIB)
    machine.done("config", "set", "broker", "0", f"cache.read={way}")
    try:
        with RawClient(machine.bootstrap) as client:
            assert [row.value for row in fetch_all(client, topic)] == [bytes(BATCH)] * 8
    finally:
        machine.done("config", "unset", "broker", "0", "cache.read")
