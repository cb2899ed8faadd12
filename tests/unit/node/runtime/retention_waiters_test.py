"""Who waits for a partition's next records hears of it when retention takes the oldest away."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.clients.fetch_raw import VERSION, fetch_request
from harness.clients.produce_raw import batch_of, produce_request
from harness.machines.brokers import START_MS, FakeClient, HandlerBench, led_here
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.node.log.epochs import FILE_NAME as EPOCHS_NAME
from tidelog.node.log.log import Log
from tidelog.node.runtime.cleaner_thread import CleanerParts, Retention
from tidelog.node.runtime.disk import DiskDirectory
from tidelog.node.runtime.flusher import Flusher
from tidelog.node.runtime.healthy import Healthy
from tidelog.node.runtime.unrecorded import Unrecorded
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce, k01_fetch
from tidelog.wire.metadata_records import PartitionChanged

KEY: TopicPartition = ("t", Partition(0))
LONG_MS = 500_000
LAST_TIME = 2
MORE_THAN_THERE_IS = 1 << 20


class Quiet:
    """A log nobody reads."""

    def __getattr__(self, _level: str) -> Callable[..., None]:
        return lambda *_words, **_fields: None


def fail(error: OSError) -> None:
    raise error


def unreadable(log: Log, error: Exception) -> None:
    raise AssertionError(log.name) from error


class Look:
    """One look of retention at all logs; the futures tell how far it has come."""

    def __init__(
        self, bench: HandlerBench, on_disk_failed: Callable[[OSError], None] = fail
    ) -> None:
        self._bench = bench
        self._times_asked = 0
        loop = asyncio.get_running_loop()
        self.told: asyncio.Future[TopicPartition] = loop.create_future()
        self.put_aside: asyncio.Future[None] = loop.create_future()
        parts = CleanerParts(
            loop=loop,
            logs=bench.logs.all[0],
            share=1.0,
            replicas=bench.broker.replicas,
            settings={"log.initial.task.delay.ms": 0, "log.retention.check.interval.ms": 1},
            flusher=Flusher(loop, bench.logs.all[0], fail, fail, unreadable),
            wall_ms=self._wall_ms,
            log=Quiet(),  # type: ignore[arg-type] # an EventLog that says nothing
            on_disk_failed=on_disk_failed,
            on_refused=on_disk_failed,
            on_unreadable=unreadable,
            ledger=Unrecorded(),
            faults=Healthy(),
            begins_later=self._begins_later,
        )
        Retention(parts).turn(START_MS)

    def _begins_later(self, key: TopicPartition) -> None:
        self._bench.broker.waiting.begins_later(self._bench.now, key)
        self.told.set_result(key)

    def _wall_ms(self) -> int:
        """Asked for before the sync, and when files get their time to go, in one turn with that."""
        self._times_asked += 1
        if self._times_asked == LAST_TIME:
            self.put_aside.set_result(None)
        return START_MS


def expire(bench: HandlerBench) -> None:
    async def run() -> None:
        assert await Look(bench).told == KEY

    asyncio.run(run())


def produced(bench: HandlerBench, batches: int) -> None:
    for _ in range(batches):
        request = produce_request("t", batch_of(bytes(3_000), timestamp=START_MS))
        answer = bench.ask(k00_produce.API, 9, request)
        assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def waiting_fetch(bench: HandlerBench, offset: int) -> FakeClient:
    client = FakeClient()
    request = fetch_request("t", offset, max_wait_ms=LONG_MS, min_bytes=MORE_THAN_THERE_IS)
    bench.begin(client, k01_fetch.API, VERSION, request)
    assert client.frames() == []
    return client


def answer_of(client: FakeClient) -> Any:
    (frame,) = client.frames()
    return decode_response(k01_fetch.API, VERSION, memoryview(frame))[1].responses[0].partitions[0]


def test_a_fetch_that_waits_at_records_that_go_is_answered_at_once(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    bench.topic("t", retention_bytes="3500", segment_bytes="4096")
    produced(bench, 5)
    client = waiting_fetch(bench, 0)
    expire(bench)
    assert answer_of(client).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_fetch_that_waits_behind_what_goes_hears_the_new_start(tmp_path: Path) -> None:
    bench = HandlerBench(tmp_path)
    bench.topic("t", retention_bytes="3500", segment_bytes="4096")
    produced(bench, 5)
    client = waiting_fetch(bench, 4)
    expire(bench)
    row = answer_of(client)
    assert (row.error_code, row.log_start_offset) == (ErrorCode.NONE, 3)


def test_files_that_deleted_records_left_go_with_the_next_look(tmp_path: Path) -> None:
    """DeleteRecords ends the log's claim to them; no record is too old or too much here."""
    bench = HandlerBench(tmp_path)
    bench.topic("t", retention_bytes="-1", retention_ms="-1", segment_bytes="4096")
    produced(bench, 5)
    replica = bench.broker.replicas.get(KEY)
    assert replica is not None
    replica.log.advance_start(3)
    bench.logs.all[0].purge()
    assert not list(tmp_path.glob("t-0/*.deleted")), "no checkpoint vouches for the start yet"
    checkpoint = bench.logs.all[0].checkpoint({})
    checkpoint.write()
    bench.logs.all[0].checkpointed(checkpoint)

    async def run() -> None:
        await Look(bench).put_aside

    asyncio.run(run())
    assert sorted(path.name for path in tmp_path.glob("t-0/*.log.deleted")) == [
        f"{base:020d}.log.deleted" for base in range(3)
    ]


def bench_of_two_epochs(tmp_path: Path) -> HandlerBench:
    bench = HandlerBench(tmp_path)
    topic_id = bench.topic("t", retention_bytes="3500", segment_bytes="4096")
    produced(bench, 2)
    again = led_here(leader_epoch=1, partition_epoch=1)
    bench.replay(PartitionChanged(topic_id, Partition(0), again))
    produced(bench, 3)
    return bench


def refuse_epochs(patch: pytest.MonkeyPatch, code: int) -> None:
    """Writing the file of the epochs fails, and nothing else."""
    replace = DiskDirectory.replace

    def refusing(
        directory: DiskDirectory, name: str, content: bytes, *, durable: bool = True
    ) -> None:
        if name == EPOCHS_NAME:
            raise OSError(code, "refused", name)
        replace(directory, name, content, durable=durable)

    patch.setattr(DiskDirectory, "replace", refusing)


def test_retention_tells_of_a_disk_that_fails_while_it_writes_the_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken disk is no lack of room: its directory must be given up."""
    bench = bench_of_two_epochs(tmp_path)

    async def run() -> OSError:
        failed: asyncio.Future[OSError] = asyncio.get_running_loop().create_future()
        with monkeypatch.context() as patch:
            refuse_epochs(patch, errno.EIO)
            Look(bench, failed.set_result)
            return await asyncio.wait_for(failed, 10)

    assert asyncio.run(run()).errno == errno.EIO


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_retention_makes_room_where_there_is_none_for_the_epochs_that_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The epochs in the file may begin below the log; an error here would end the broker."""
    bench = bench_of_two_epochs(tmp_path)
    replica = bench.broker.replicas.get(KEY)
    assert replica is not None

    async def run() -> None:
        look = Look(bench)
        with monkeypatch.context() as patch:
            refuse_epochs(patch, code)
            await asyncio.wait_for(look.put_aside, 10)

    asyncio.run(run())
    assert replica.log.start == 3
    assert replica.log.epochs.epoch_at(3) == 1
    produced(bench, 1)
    bench.logs.all[0].close_clean({})
    content = (tmp_path / "t-0" / EPOCHS_NAME).read_text(encoding="ascii")
    assert content.splitlines()[2:] == ["1 3"]
