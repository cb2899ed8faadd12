"""Keeps a broker's logs small: retention on the loop, a little at a time, and compaction beside it.

Compaction is decided and put in force on the loop, between two events; a thread waits for the
worker process that reads and writes, and for the disk. A shell.
"""

import asyncio
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidelog.kernel.failures import CorruptError
from tidelog.node.log.causes import Cause
from tidelog.node.log.cleaner import Candidate, job_for
from tidelog.node.log.cleaning import Cleaned, Finished
from tidelog.node.log.compactions import Compacted, Compactions, failure_of
from tidelog.node.log.contracts import LogName
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.failed_passes import Failure
from tidelog.node.log.log import Log
from tidelog.node.log.retention import Sweep
from tidelog.node.log.shortages import is_full, is_shortage
from tidelog.node.log.swap import discard_unfinished, put_in_force
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.runtime.cleaner_worker import Failed, Order, Worker, WorkerDiedError
from tidelog.node.runtime.flusher import Flusher
from tidelog.node.runtime.healthy import Healthy
from tidelog.node.runtime.process import EventLog
from tidelog.node.runtime.unrecorded import Unrecorded
from tidelog.wire.checkpoints import PARTITION_METADATA

if TYPE_CHECKING:
    from tidelog.kernel.ids import TopicPartition

_T = TypeVar("_T")
_MILLISECOND: Final = 0.001


@dataclass(frozen=True, slots=True)
class CleanerParts:
    """What both need of the broker."""

    loop: asyncio.AbstractEventLoop
    logs: LogDirectory
    share: float
    """Of what a broker's cleaners may use together, so much is for this directory."""
    replicas: Replicas
    settings: Mapping[str, Any]
    """Live: a change counts from the next turn on."""
    flusher: Flusher
    wall_ms: Callable[[], int]
    log: EventLog
    on_disk_failed: Callable[[OSError], None]
    on_refused: Callable[[OSError], None]
    """Told what the disk did not do, for want of room, or because it is sick."""
    on_unreadable: Callable[[Log, Exception], None]
    """Told of a log that cannot be read."""
    ledger: Unrecorded
    faults: Healthy
    begins_later: Callable[["TopicPartition"], None]
    """Told of a partition whose oldest records went: who waits for them must look again."""
    on_compaction: Callable[[LogName, Failure | None], None] = lambda *_: None
    """Told of a log that cannot be compacted, and with None when that is over."""


class Retention:
    """Deletes what is old or too much.

    Invariant: no record is taken away before the checkpoint says so: a kill never brings it back.
    """

    def __init__(self, parts: CleanerParts) -> None:
        self._parts = parts
        self._sweep: Sweep | None = None
        self._wanted: dict[Log, int] = {}
        self._next_ms: int | None = None

    def turn(self, now_ms: int) -> None:
        """Called ten times a second."""
        if self._next_ms is None:
            self._next_ms = now_ms + self._parts.settings["log.initial.task.delay.ms"]
        sweep = self._sweep
        if sweep is None:
            if now_ms < self._next_ms:
                return
            self._next_ms = now_ms + self._parts.settings["log.retention.check.interval.ms"]
            self._sweep = sweep = Sweep((one.log, one.high_watermark) for one in self._mine())
        self._wanted |= sweep.step(now_ms, self._on_trouble)
        if sweep.done:
            self._sweep = None
            wanted, self._wanted = self._wanted, {}
            if wanted:
                self._begin(wanted)
            else:
                self._put_aside({})

    def _mine(self) -> list[Replica]:
        return [one for one in self._parts.replicas if one.key in self._parts.logs]

    def _on_trouble(self, log: Log, reason: str) -> None:
        self._parts.log.error("retention_failed", partition=log.name.directory, reason=reason)

    def _begin(self, wanted: dict[Log, int]) -> None:
        parts = self._parts
        parts.logs.plan_starts({log.name.key: start for log, start in wanted.items()})
        parts.flusher.checkpoint(lambda _kept: self._take_away(wanted))

    def _take_away(self, wanted: dict[Log, int]) -> None:
        """The checkpoint is in force; where the disk is too full for it, this makes room."""
        parts = self._parts
        parts.logs.plan_starts({})
        gone = {log: start for log, start in wanted.items() if log.has_files}
        for log, start in gone.items():
            self._advance(log, min(start, log.end))
            if parts.logs.failure is not None:
                return
        self._put_aside({log: log.start for log in gone})

    def _advance(self, log: Log, start: int) -> None:
        """The records are gone in any case: the checkpoint says so. If there is no room or no file
        descriptor, small files stay until the next start."""
        parts = self._parts
        try:
            log.advance_start(start)
        except OSError as error:
            if not is_full(error) and not is_shortage(error):
                parts.on_disk_failed(error)
                return
            parts.on_refused(error)
        except CorruptError as error:
            parts.on_unreadable(log, error)
            return
        parts.log.info("records_expired", partition=log.name.directory, start=log.start)
        parts.begins_later(log.name.key)

    def _put_aside(self, gone: Mapping[Log, int]) -> None:
        """Files below these starts, and those of records that DeleteRecords took away before."""
        parts = self._parts
        try:
            parts.logs.purge_aside(parts.wall_ms())
        except OSError as error:
            parts.on_refused(error)
            return
        retired = {**parts.logs.retired(), **gone}
        if not retired:
            return
        future = parts.loop.run_in_executor(None, parts.logs.sync)
        future.add_done_callback(lambda done: self._synced(retired, done))

    def _synced(self, retired: Mapping[Log, int], done: "asyncio.Future[None]") -> None:
        error = done.exception()
        if isinstance(error, OSError):
            self._parts.on_disk_failed(error)
            return
        now_ms = self._parts.wall_ms()
        for log, start in retired.items():
            try:
                log.put_aside(start, now_ms)
            except OSError as refused:
                self._parts.on_refused(refused)
            else:
                purge_later(self._parts, log)


class CleanerThread:
    """Compacts one log after another, the filthiest first.

    Invariant: at most one thread and one worker; what they find is put in force on the loop only.
    """

    def __init__(self, parts: CleanerParts) -> None:
        self._parts = parts
        self._next_ms = 0
        self._running = False
        self._stopping = False
        self._worker: Worker | None = None
        self._compactions = Compactions(self._tell)

    @property
    def failing(self) -> int:
        """How many logs cannot be compacted at the moment."""
        return len(self._compactions)

    def turn(self, now_ms: int) -> None:
        """Called once a second."""
        if self._running or self._stopping or now_ms < self._next_ms:
            return
        found = self._next()
        if found is None:
            self._next_ms = now_ms + self._parts.settings["log.cleaner.backoff.ms"]
            return
        self._running = True
        threading.Thread(target=self._run, args=(found,), name="cleaner", daemon=True).start()

    def close(self) -> None:
        """What is under way is left as it is: the next start ends or undoes it."""
        self._stopping = True
        if self._worker is not None:
            self._worker.kill()

    # -- on the loop

    def _next(self) -> Candidate | None:
        parts = self._parts
        if self._stopping or not parts.settings["log.cleaner.enable"]:
            return None
        # Few logs of ten thousand are compacted: the others must not cost a call each.
        compacted = [
            Compacted(replica.log, parts.logs.cleaned(replica.key), replica.high_watermark)
            for replica in parts.replicas
            if replica.log.settings.compact and replica.key in parts.logs
        ]
        return self._compactions.next(compacted, parts.wall_ms())

    def _order(self, found: Candidate) -> Order:
        settings, share, log = self._parts.settings, self._parts.share, found.log
        map_bytes_max = int(settings["log.cleaner.dedupe.buffer.size"] * share)
        return Order(
            path=log.directory.path,
            metadata=log.directory.read_all(PARTITION_METADATA) or b"",
            bytes_per_second=settings["log.cleaner.io.max.bytes.per.second"] * share,
            job=job_for(found, map_bytes_max=map_bytes_max, now_ms=self._parts.wall_ms()),
        )

    def _announce(self, found: Candidate, done: Callable[[bool], None]) -> None:
        """Before a pass a log must be known as compacted, and as flushed so far."""
        key, end = found.log.name.key, found.cleanable[-1].end
        if self._parts.logs.announces(key, found.dirty_start, end):
            self._parts.flusher.checkpoint(done)
        else:
            done(True)  # noqa: FBT003 -- as a checkpoint says it

    def _finished(self, found: Candidate, result: Finished) -> None:
        log, name = found.log, found.log.name
        if log.has_files and log.cuts == found.cuts:  # else it may be clean no longer
            self._parts.logs.note_cleaned(name.key, result.end)
        self._parts.log.info(
            "compacted",
            partition=name.directory,
            end=result.end,
            keys=result.keys,
            bytes_read=result.bytes_read,
            bytes_written=result.bytes_written,
            unreadable=result.unreadable,
        )
        self._compactions.passed(found)
        purge_later(self._parts, log)

    def _failed(self, found: Candidate, done: int, failure: Failure) -> None:
        if not self._compactions.failed(found, done, failure, self._parts.wall_ms()):
            self._tell_overtaken(found)

    def _overtaken(self, found: Candidate) -> None:
        self._compactions.overtaken(found, self._parts.wall_ms())
        self._tell_overtaken(found)

    def _tell_overtaken(self, found: Candidate) -> None:
        self._parts.log.debug("compaction_overtaken", partition=found.log.name.directory)

    def _tell(self, name: LogName, failure: Failure | None) -> None:
        if failure is None:
            self._parts.log.info("compaction_failure_over", partition=name.directory)
        else:
            self._parts.log.error(
                "compaction_failed",
                partition=name.directory,
                cause=failure.cause.name.lower(),
                reason=failure.reason,
                advice="see tidelog why partition; it is tried again, at longer and longer pauses",
            )
        self._parts.on_compaction(name, failure)

    def _ended(self, error: BaseException | None) -> None:
        self._running = False
        if isinstance(error, OSError):
            self._parts.on_disk_failed(error)
        elif error is not None:
            raise error

    # -- in the thread

    def _run(self, first: Candidate) -> None:
        error: BaseException | None = None
        try:
            self._work(first)
        except StoppingError:
            pass
        except BaseException as caught:  # noqa: BLE001 -- raised again on the loop
            error = caught
        if not self._stopping:
            self._parts.loop.call_soon_threadsafe(self._ended, error)

    def _work(self, first: Candidate) -> None:
        """One log after another, until none is due or the worker is gone."""
        try:
            self._worker = worker = Worker(self._parts.ledger, self._parts.faults)
        except OSError as error:  # no process, descriptor or memory is left for it
            self._note_failure(first, 0, failure_of(error))
            return
        try:
            found: Candidate | None = first
            while found is not None and not self._stopping:
                if not self._clean(worker, found):
                    return
                found = self._on_loop(self._next)
        finally:
            self._worker = None
            worker.close()

    def _clean(self, worker: Worker, found: Candidate) -> bool:
        """One pass over one log; whether the worker can go on with the next."""

        def announce(done: Callable[[bool], None]) -> None:
            self._announce(found, done)

        if not self._wait_for(announce):
            self._note_failure(found, 0, Failure(Cause.DISK, "no checkpoint could be written"))
            return False
        self._parts.logs.sync()
        try:
            order = self._on_loop(partial(self._order, found))
        except OSError as error:
            self._note_failure(found, 0, failure_of(error))
            return True
        return self._follow(worker, found, order)

    def _follow(self, worker: Worker, found: Candidate, order: Order) -> bool:
        """Take what the worker makes, as it comes."""
        done = 0
        try:
            for result in worker.results(order):
                match result:
                    case Finished():
                        self._on_loop(partial(self._finished, found, result))
                    case Failed(failure):
                        self._note_failure(found, done, failure)
                    case Cleaned(old):
                        if not self._put_in_force(found, result):
                            self._discard(worker, found)
                            return False
                        done = old[-1].end
        except WorkerDiedError as error:
            self._note_failure(found, done, Failure(Cause.WORKER_DIED, str(error)))
            return False
        return True

    def _discard(self, worker: Worker, found: Candidate) -> None:
        """Remove what the pass has written. The worker must be dead by then: it is writing the next
        segment, and would leave files of which only some are removed. A start would take the index
        of a `.swap` whose log is gone for that of the old segment."""
        worker.end()
        discard_unfinished(found.log.directory)
        self._on_loop(partial(self._overtaken, found))

    def _note_failure(self, found: Candidate, done: int, failure: Failure) -> None:
        self._on_loop(partial(self._failed, found, done, failure))

    def _put_in_force(self, found: Candidate, cleaned: Cleaned) -> bool:
        """Whether the log is still what it was when the pass began."""
        log = found.log
        remove_at_ms = self._parts.wall_ms() + log.settings.file_delete_delay_ms
        return put_in_force(log, cleaned, found.cuts, remove_at_ms, self._on_loop)

    def _on_loop(self, call: Callable[[], _T]) -> _T:
        """Have the loop call it, between two events; its result."""

        def answer(done: Callable[[_T], None]) -> None:
            done(call())

        return self._wait_for(answer)

    def _wait_for(self, ask: Callable[[Callable[[_T], None]], None]) -> _T:
        """Have the loop ask for something; what it is told, whenever that is."""
        answer: Future[_T] = Future()

        def begin() -> None:
            try:
                ask(answer.set_result)
            except BaseException as error:  # noqa: BLE001 -- raised again in the thread
                answer.set_exception(error)

        if self._stopping:
            raise StoppingError
        self._parts.loop.call_soon_threadsafe(begin)
        return answer.result()


class StoppingError(Exception):
    """The broker stops: nothing is asked of its loop any more."""


def purge_later(parts: CleanerParts, log: Log) -> None:
    """Remove the files just put aside when their time is up."""

    def purge() -> None:
        try:
            log.purge(parts.wall_ms())
        except OSError as error:
            parts.on_disk_failed(error)

    delay_s = (log.settings.file_delete_delay_ms + 1) * _MILLISECOND
    parts.loop.call_later(delay_s, purge)
