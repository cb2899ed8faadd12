"""The exactly-once sink of Spark in a simulated cluster: its own decisions and plans, with tasks
and drivers that are cut short, repeated, killed and asleep, and a checkpoint as Spark keeps it.

A row is a number, the next one of an endless source. A micro-batch has the rows between two of
them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Any, Final

from harness.clients.produce_raw import batch_of
from harness.simulation.living import Life, Wish
from harness.simulation.plans import Died, PlanRunner
from tidelog.clients.asking import Answered, Ask, Call, Pause, Plan
from tidelog.clients.cluster_view import STALE, ClusterView, known_code, refresh
from tidelog.clients.failures import ClientError
from tidelog.clients.producer.identity import init_producer_id
from tidelog.clients.producer.sender import PRODUCE_VERSION_OF_ADDING, Identity
from tidelog.clients.producer.transaction import (
    Membership,
    add_offsets,
    add_partitions,
    commit_offsets,
    end_transaction,
)
from tidelog.clients.producer.transactional import OpenTransaction
from tidelog.clients.retry import BACKOFF
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import ms
from tidelog.spark.sink_commit import Finish, Sink, finish, give_up, permit_now, read_markers
from tidelog.spark.sink_decisions import Batch, Rules, check_permit, part_is_written
from tidelog.spark.sink_markers import part_metadata
from tidelog.spark.sink_permits import read_permit
from tidelog.spark.tasks import Kept, Open, SinkError, TaskInfo, Total, Written, go_on
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages.k08_offset_commit import API as OFFSET_COMMIT
from tidelog.wire.messages.k22_init_producer_id import API as INIT_PRODUCER_ID
from tidelog.wire.messages.k26_end_txn import API as END_TXN
from tidelog.wire.messages.k28_txn_offset_commit import API as TXN_OFFSET_COMMIT
from tidelog.wire.records import TRANSACTIONAL_BIT, Origin

TOPIC: Final = "t"
PARTITIONS: Final = 2
SINK: Final = Sink("s", (TOPIC, Partition(0)))
LONG_MS: Final = 60_000
ATTEMPT_MS: Final = 8_000
"""After which Spark gives an attempt up."""
LATE_START_MS: Final = 30_000
"""How late an attempt begins at most."""
HOST_SPEED: Final = 10_000
"""How much faster the clocks of hosts run than simulated time: some markers of unused parts are
then old enough to be committed again."""
CHANGES: Final = (INIT_PRODUCER_ID, OFFSET_COMMIT, TXN_OFFSET_COMMIT, END_TXN)
"""What a driver changes in the cluster."""
TROUBLES: Final = (ClientError, Rejected, SinkError)


@dataclass(frozen=True)
class Planned:
    """What Spark keeps in `offsets/N`."""

    digest: str
    start: int
    end: int

    def rows_of(self, task: int, tasks: int) -> list[int]:
        return list(range(self.start, self.end))[task::tasks]


@dataclass
class Checkpoint:
    """What Spark keeps: which micro-batches it has planned, and which it knows to be done."""

    query: str
    first: int = 0
    planned: dict[int, Planned] = field(default_factory=dict)
    done: set[int] = field(default_factory=set)

    @property
    def number(self) -> int:
        """Of the micro-batch that comes next, or again."""
        return max(self.done, default=-1) + 1

    @property
    def position(self) -> int:
        """Behind the last row that is planned."""
        return max((one.end for one in self.planned.values()), default=self.first)

    def plan(self, rows: int, digest: str) -> Planned:
        """The next micro-batch; the same one as before if it was planned already."""
        known = self.planned.get(self.number)
        if known is None:
            known = Planned(digest, self.position, self.position + rows)
            self.planned[self.number] = known
        return known

    def copy(self) -> "Checkpoint":
        return Checkpoint(self.query, self.first, dict(self.planned), set(self.done))


@dataclass
class Terms:
    """What the processes of one run have in common."""

    takes_epochs: bool
    timeout_ms: int
    clocks_differ_ms: int = 0
    """By how much the clock of a process is ahead of the cluster's, or behind it, at most."""
    rules: Rules = Rules(SINK.name)
    commits_in_tasks: bool = False
    """A planted fault: a task takes the end of its input for the end of its rows."""


class Clock:
    """Of the host of one process."""

    def __init__(self, runner: PlanRunner, terms: Terms) -> None:
        self._cluster = runner.cluster
        differs_ms = terms.clocks_differ_ms
        self._ahead_ms = runner.rng.randint(-differs_ms, differs_ms) if differs_ms else 0

    def now_ms(self) -> int:
        return self._cluster.now // ms(1) * HOST_SPEED + self._ahead_ms


def total_of(rows: Sequence[int]) -> Total:
    """Stands for the fingerprint of columns."""
    hashes = [int.from_bytes(blake2b(b"%d" % row, digest_size=8).digest()) for row in rows]
    return Total(len(rows), sum(hashes) % (1 << 64))


class Attempt(PlanRunner):
    """One attempt at a task, in a process of its own. `said` is its message to the driver."""

    def __init__(self, runner: PlanRunner, terms: Terms, task: TaskInfo, rows: list[int]) -> None:
        super().__init__(runner.cluster, runner.rng, runner.troubles)
        self.terms = terms
        self.clock = Clock(self, terms)
        self.task = task
        self.rows = rows
        """As far as they came: its input may have ended early."""
        self.begins_after_ms = 0.0
        """How long its host is busy with other things at first."""
        self.on_over: Callable[[], None] = lambda: None
        self.said: Written | None = None
        self.error: Exception | None = None

    def lives(self) -> Life:
        if self.begins_after_ms:
            yield "wait", self.begins_after_ms
        try:
            self.said = yield from self._attempt()
        except TROUBLES as error:
            self.error = error
        self.on_over()

    def _attempt(self) -> Life:
        terms, task = self.terms, self.task
        name = SINK.part(task.partition)
        began_ms = self.clock.now_ms()
        yield from self.runs(refresh(self.view, [TOPIC]))
        permit = yield from self.runs(permit_now(self.view, SINK, task))
        check_permit(terms.rules, task, permit)
        me = yield from self.runs(init_producer_id(self.view, name, timeout_ms=terms.timeout_ms))
        part, sink, permit = yield from self.runs(read_markers(self.view, SINK, task))
        check_permit(terms.rules, task, permit)
        total = total_of(self.rows)
        if part_is_written(terms.rules, task, part, sink):
            is_its = part is not None and part.offset == task.batch + 1
            kept = Kept(part.total) if part is not None and is_its else None
            return Written(task.partition, 0, skipped=True, total=total, kept=kept)
        transaction = OpenTransaction(name, me, terms.takes_epochs)
        try:
            yield from self.runs(write(self.view, transaction, self.rows))
            metadata = part_metadata(task.query, total)
            yield from self.runs(mark(self.view, transaction, task.batch + 1, metadata))
        except TROUBLES:
            yield from self._abort(transaction)
            raise
        if terms.commits_in_tasks:
            yield from self.runs(ended(self.view, transaction, committed=True))
        return Written(
            task.partition, len(self.rows), total=total, open=Open(transaction, began_ms)
        )

    def _abort(self, transaction: OpenTransaction) -> Life:
        try:
            yield from self.runs(ended(self.view, transaction, committed=False))
        except TROUBLES:
            return


class Driver(PlanRunner):
    """One run of a query: does micro-batches until it fails, or has done so many."""

    def __init__(
        self,
        runner: PlanRunner,
        terms: Terms,
        checkpoint: Checkpoint,
        *,
        tasks: int,
        batches: int,
    ) -> None:
        super().__init__(runner.cluster, runner.rng, runner.troubles)
        self.terms = terms
        self.clock = Clock(self, terms)
        self.checkpoint = checkpoint
        self.tasks = tasks
        self.batches = batches
        self.cuts = 0.0
        """Of so many attempts the input ends early."""
        self.dozes = 0.0
        """How likely it stands still for seconds before it changes something in the cluster."""
        self.late = 0.0
        """How likely an attempt begins seconds after Spark has told its host to."""
        self.has_let_go = False
        """Its job has failed, and all that was open then was aborted."""
        self.on_let_go: Callable[[], None] = lambda: None
        """Called then, and at the end of each attempt that comes to its end later."""
        self.on_doze: Callable[[], None] = lambda: None
        """Called when it is about to do so."""
        self.error: Exception | None = None
        self.claimed: list[int] = []
        """Rows of the micro-batches that this run has told Spark are done."""
        self.attempts: list[Attempt] = []

    def lives(self) -> Life:
        try:
            for _ in range(self.batches):
                yield from self._micro_batch()
        except TROUBLES as error:
            self.error = error

    def _micro_batch(self) -> Life:
        digest = f"{self.rng.getrandbits(64):x}"
        planned = self.checkpoint.plan(self.rng.randint(1, 6), digest)
        number = self.checkpoint.number
        permit = yield from self.runs(read_permit(self.view, SINK.permit))
        try:
            yield from self._job(number, planned, permit)
        except TROUBLES:
            yield from self._give_up()
            raise
        self.claimed += range(planned.start, planned.end)
        self.checkpoint.done.add(number)

    def _job(self, number: int, planned: Planned, permit: Identity) -> Life:
        messages = yield from self._all_tasks(number, planned, permit)
        terms = self.terms
        work = Finish(
            SINK,
            terms.rules,
            Batch(self.checkpoint.query, number, planned.digest),
            terms.timeout_ms,
            takes_epochs=terms.takes_epochs,
            now_ms=self.clock.now_ms(),
            reached=go_on,
        )
        yield from self.runs(finish(self.view, work, messages))

    def _give_up(self) -> Life:
        """What can be done of it."""
        try:
            outcomes = yield from self.runs(give_up(self.view, SINK, self.tasks))
        except TROUBLES:
            return
        self.has_let_go = all(isinstance(one, Identity) for one in outcomes)
        self._tell_if_let_go()

    def _tell_if_let_go(self) -> None:
        if self.has_let_go:
            self.on_let_go()

    def _grant(self, wish: Wish, come: Callable[[Any], None]) -> None:
        kind, what = wish
        changes = kind == "ask" and any(call.ask.api in CHANGES for call in what)
        if not (changes and self.dozes and self.rng.random() < self.dozes):
            super()._grant(wish, come)
            return
        self.on_doze()
        wakes = partial(super()._grant, wish, come)
        self.cluster.timeline.after(self.rng.uniform(500, 6_000), wakes)

    def _all_tasks(self, number: int, planned: Planned, permit: Identity) -> Life:
        """One attempt after the other where one fails; now and then one beside the other."""
        running: list[list[Attempt]] = []
        for task in range(self.tasks):
            rows = planned.rows_of(task, self.tasks)
            beside = 2 if self.rng.random() < self.cuts / 3 else 1
            info = TaskInfo(self.checkpoint.query, number, task, permit=permit)
            running.append([self._begin(info, rows) for _ in range(beside)])
        yield from self.runs(refresh(self.view, [TOPIC]))
        messages: list[Written] = []
        for task, attempts in enumerate(running):
            rows = planned.rows_of(task, self.tasks)
            messages.append((yield from self._one_task(attempts, rows)))
        return messages

    def _one_task(self, attempts: list[Attempt], rows: list[int]) -> Life:
        for _ in range(2):
            said = yield from self._message(attempts, rows)
            if said is not None:
                return said
            # What has fed it failed; it may not know that, and live on.
            attempts = [self._begin(attempts[0].task, rows)]
        errors = [one.error for one in self.attempts if one.error is not None]
        raise next((one for one in errors if isinstance(one, SinkError)), ClientError("failed"))

    def _message(self, attempts: list[Attempt], rows: list[int]) -> Life:
        """Of the first that succeeds; None if its input had ended early, or nobody succeeds."""
        until = self.cluster.now + ms(ATTEMPT_MS)
        while self.cluster.now < until and not _is_decided(attempts):
            yield "wait", 20
        done = (one.said for one in attempts if one.said is not None and one.rows == rows)
        return next(done, None)

    def _begin(self, task: TaskInfo, rows: list[int]) -> Attempt:
        cut = rows[: self.rng.randint(0, len(rows))] if self.rng.random() < self.cuts else rows
        attempt = Attempt(self, self.terms, task, cut)
        if self.rng.random() < self.late:
            attempt.begins_after_ms = self.rng.uniform(0, LATE_START_MS)
        attempt.on_over = self._tell_if_let_go
        self.attempts.append(attempt)
        attempt.live(surviving(attempt.lives()))
        return attempt


def _is_decided(attempts: list[Attempt]) -> bool:
    has_said = any(one.said is not None for one in attempts)
    return has_said or all(one.is_over for one in attempts)


def surviving(life: Life) -> Life:
    """Its end by death is an end."""
    try:
        yield from life
    except Died:
        return


def write(view: ClusterView, transaction: OpenTransaction, rows: Sequence[int]) -> Plan[None]:
    """Each row to its partition, one batch to each."""
    for number in range(PARTITIONS):
        values = [b"%d" % row for row in rows if row % PARTITIONS == number]
        if values:
            key = (TOPIC, Partition(number))
            if not transaction.takes_epochs:
                name, identity, _ = transaction
                yield from add_partitions(view, name, identity, [key])
            yield from produce(view, transaction, key, values)


def produce(
    view: ClusterView, transaction: OpenTransaction, key: TopicPartition, values: list[bytes]
) -> Plan[None]:
    """The first batch of this producer in a partition, again and again until it is answered."""
    name, identity, takes_epochs = transaction
    origin = Origin(identity.producer_id, identity.epoch, 0, TRANSACTIONAL_BIT)
    batch = bytes(batch_of(*values, origin=origin))
    failures = 0
    while True:
        leader = view.leader(key)
        code: ErrorCode | None = None
        if leader is not None:
            (outcome,) = yield [Call(leader, _asked(name, key, batch, adds=takes_epochs))]
            code = _code_of(outcome)
        if code in {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            return
        if code is not None and code not in RETRIABLE and code not in STALE:
            raise Rejected(code, name)
        failures += 1
        if failures > 12:
            raise ClientError("no broker took it in time")
        yield Pause(BACKOFF.wait(failures), "no leader has it")
        yield from refresh(view, [key[0]])


def _asked(name: str, key: TopicPartition, batch: bytes, *, adds: bool) -> Ask:
    row = k00.PartitionProduceData(index=key[1], records=memoryview(bytearray(batch)))
    request = k00.ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[k00.TopicProduceData(name=key[0], partition_data=[row])],
    )
    least = PRODUCE_VERSION_OF_ADDING
    return Ask(
        k00.API,
        request,
        version_min=least if adds else 0,
        version_max=least if adds else least - 1,
    )


def _code_of(outcome: Any) -> ErrorCode | None:
    if not isinstance(outcome, Answered):
        return None
    return known_code(outcome.message.responses[0].partition_responses[0].error_code)


def mark(view: ClusterView, transaction: OpenTransaction, offset: int, metadata: str) -> Plan[None]:
    """The part's marker, in its transaction."""
    name, identity, takes_epochs = transaction
    if not takes_epochs:
        yield from add_offsets(view, name, identity, name)
    member = Membership(name, metadata=metadata)
    offsets = {SINK.marker: offset}
    yield from commit_offsets(view, name, identity, member, offsets, bumps=takes_epochs)


def ended(view: ClusterView, transaction: OpenTransaction, *, committed: bool) -> Plan[Identity]:
    name, identity, takes_epochs = transaction
    return (
        yield from end_transaction(view, name, identity, committed=committed, bumps=takes_epochs)
    )
