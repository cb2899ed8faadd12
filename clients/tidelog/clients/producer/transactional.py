"""The blocking producer of transactions: what it writes is seen as a whole or not at all.

```python
producer = TransactionalProducer(client, ProducerSettings(transactional_id="billing-1"))
producer.open("bills")
producer.begin()
producer.send("bills", record)
producer.send_offsets({("orders", Partition(0)): 42}, Membership("billing"))
producer.commit()
```

An `AbortableError` leaves one thing to do: `abort`, then `begin` anew. A `FatalError` leaves none:
another has taken the id over, and this producer must end. A `TimedOutError` says that nobody has
answered yet: the same call may be made again, and a commit must be, for it may have happened.
"""

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from tidelog.clients.asking import Plan
from tidelog.clients.client import Client
from tidelog.clients.failures import TimedOutError, UnsupportedError
from tidelog.clients.producer.identity import init_producer_id
from tidelog.clients.producer.life import Life, Phase, Step
from tidelog.clients.producer.producer import LONGEST_POLL_NS, Producer
from tidelog.clients.producer.sender import Identity
from tidelog.clients.producer.transaction import (
    Membership,
    add_offsets,
    add_partitions,
    commit_offsets,
    end_transaction,
    ends_take_epochs,
)
from tidelog.clients.settings import ProducerSettings
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import Record

ResultT = TypeVar("ResultT")


class OpenTransaction(NamedTuple):
    """All that is needed to end a transaction, in whichever process."""

    transactional_id: str
    identity: Identity
    takes_epochs: bool
    """Whether it is one of version 2, in which each end takes an epoch."""


class TransactionalProducer(Producer):
    """`open`, then `begin`, `send`, `send_offsets` and `commit` or `abort`, again and again.

    The first `open` takes the transactional id from whoever had it, and aborts what that left open.
    """

    def __init__(
        self, client: Client, settings: ProducerSettings, *, first_partition: int = 0
    ) -> None:
        super().__init__(client, settings, first_partition=first_partition)
        assert settings.transactional_id is not None
        self._name = settings.transactional_id
        self._life = Life()
        self._has_offsets = False

    @property
    def phase(self) -> Phase:
        """What may be done next."""
        return self._life.phase

    def begin(self) -> None:
        """Whatever is sent from here on belongs together."""
        self._life.begin()
        # Another version may be the cluster's since; within a transaction it stays.
        self._sender.adds = ends_take_epochs(self._client.network.features)

    def send(self, topic: str, record: Record, partition: Partition | None = None) -> None:
        """As part of the transaction; raises what broke it since the last call."""
        self._life.check_open()
        super().send(topic, record, partition)
        self._raise_failure()

    def send_batch(self, topic: str, partition: Partition, batch: bytearray) -> None:
        """As part of the transaction; raises what broke it since the last call."""
        self._life.check_open()
        super().send_batch(topic, partition, batch)
        self._raise_failure()

    def flush(self) -> None:
        """Return once all of it is written."""
        self._life.check_unbroken()
        super().flush()
        self._raise_failure()

    def send_offsets(self, offsets: Mapping[TopicPartition, int], member: Membership) -> None:
        """How far the group has read counts from the commit on; raises where the group went on
        without this member."""
        self._life.check_open()
        if not offsets:
            return
        me, view, adds = self._me(), self._client.view, self._sender.adds
        if not adds:
            self._run(Step.ADD_OFFSETS, add_offsets(view, self._name, me, member.group))
        self._has_offsets = True
        self._run(
            Step.COMMIT_OFFSETS,
            commit_offsets(view, self._name, me, member, offsets, bumps=adds),
        )

    def commit(self) -> None:
        """Once this returns all of the transaction can be seen."""
        if self._life.phase is not Phase.COMMITTING:
            self._life.check_open()
            self.flush()
        self._life.commit()
        self._end(committed=True)

    def leave_open(self) -> OpenTransaction:
        """Return once all of the transaction is written; it stays open until somebody else ends it
        (`end_transaction`) or takes the id over. This producer must not be used any more."""
        self._life.check_open()
        self.flush()
        return OpenTransaction(self._name, self._me(), self._sender.adds)

    def abort(self, timeout_ns: int | None = None) -> None:
        """Once this returns nothing of the transaction will ever be seen; TimedOutError where the
        time given was not enough to learn that."""
        self._life.abort()
        self._accumulator.close_all()
        self._sender.accept()
        self._sender.drop()
        network = self._client.network
        until = None if timeout_ns is None else network.now() + timeout_ns
        while not self._sender.idle:
            if until is not None and network.now() >= until:
                raise TimedOutError("gave up the abort: a broker does not answer")
            self.work(Instant(network.now() + LONGEST_POLL_NS))
        self._end(committed=False, timeout_ns=timeout_ns)

    def _end(self, *, committed: bool, timeout_ns: int | None = None) -> None:
        identity = self._me()
        if self._sender.begun or self._has_offsets:
            takes = self._sender.adds
            plan = end_transaction(
                self._client.view, self._name, identity, committed=committed, bumps=takes
            )
            step = Step.COMMIT if committed and takes else Step.END
            identity = self._run(step, plan, timeout_ns)
        self._sender.ended()
        self._has_offsets = False
        if identity != self._me():
            self._sender.renew(identity)
        if not self._sender.is_sure:
            # Of some number nobody knows whether it is used; and a batch that comes late must not
            # be taken for one of the next transaction. In the next epoch neither can be.
            self._sender.renew(self._run(Step.INIT, self._init(self._me())))
        self._life.ready()

    def _identify(self) -> None:
        self._sender.identity = self._run(Step.INIT, self._init(None))
        self._life.ready()

    def _init(self, current: Identity | None) -> Plan[Identity]:
        timeout_ms = self._settings.transaction_timeout_ns // 1_000_000
        return init_producer_id(self._client.view, self._name, current, timeout_ms=timeout_ms)

    def _prepare(self) -> None:
        unadded = self._sender.unadded()
        if unadded and self._life.phase is Phase.OPEN:
            plan = add_partitions(self._client.view, self._name, self._me(), unadded)
            self._run(Step.ADD_PARTITIONS, plan)
            self._sender.added(unadded)

    def _me(self) -> Identity:
        assert self._sender.identity is not None, "open() comes first"
        return self._sender.identity

    def _raise_failure(self) -> None:
        failed = self._sender.failure
        if failed is not None and self._life.phase is Phase.OPEN:
            name = f"{failed.partition[0]}-{failed.partition[1]}"
            detail = f"{name}: {failed.detail}" if failed.detail else name
            raise self._life.fail(Step.PRODUCE, failed.code, detail)

    def _run(self, step: Step, plan: Plan[ResultT], timeout_ns: int | None = None) -> ResultT:
        try:
            return self._client.run(plan, timeout_ns)
        except Rejected as error:
            raise self._life.fail(step, error.code, error.detail) from error
        except UnsupportedError as error:
            code = ErrorCode.UNSUPPORTED_VERSION
            raise self._life.fail(step, code, str(error)) from error
