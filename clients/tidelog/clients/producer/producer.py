"""The blocking producer: appends, and works the network when it must; without transactions.

One thread owns it. Nothing happens between two calls, so a program that stops appending calls
`flush`.
"""

from tidelog.clients.asking import Answered, Lost, Ticket
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.clients.failures import ClientError
from tidelog.clients.producer.accumulator import Accumulator
from tidelog.clients.producer.identity import init_producer_id
from tidelog.clients.producer.partitioner import StickyPartitioner, partition_of_key
from tidelog.clients.producer.sender import Identity, Result, Send, Sender
from tidelog.clients.settings import ProducerSettings
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import Instant, s
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import Record

LONGEST_POLL_NS = s(1)


class Producer:
    """`send` and `flush`; what became of the batches is in `take_results`.

    Records without a key begin at `first_partition`: many producers should not all begin at one.
    """

    def __init__(
        self, client: Client, settings: ProducerSettings, *, first_partition: int = 0
    ) -> None:
        self._client = client
        self._settings = settings
        self._accumulator = Accumulator(settings)
        self._sender = Sender(settings, self._accumulator)
        self._sent: dict[Ticket, Send] = {}
        self._sticky: dict[str, StickyPartitioner] = {}
        self._first_partition = first_partition

    def open(self, topic: str) -> int:
        """Learn a topic, and once who we are; how many partitions it has. Rejected if none."""
        self._client.run(refresh(self._client.view, {topic}))
        error = self._client.view.errors.get(topic)
        if error is not None:
            raise Rejected(error, topic)
        if self._settings.idempotent and self._sender.identity is None:
            self._identify()
        self._sticky.setdefault(topic, StickyPartitioner(self._first_partition))
        count = self._client.view.partition_count(topic)
        if count == 0:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic)
        return count

    def send(self, topic: str, record: Record, partition: Partition | None = None) -> None:
        """Append to an opened topic; blocks while the buffer is full. The offset is not used."""
        sticky = self._sticky[topic]
        chosen = partition
        if chosen is None:
            count = self._client.view.partition_count(topic) or 1
            key = record.key
            chosen = sticky.choose(count) if key is None else partition_of_key(key, count)
        now = self._client.network.now()
        if self._accumulator.append(now, (topic, chosen), record):
            if partition is None and record.key is None:
                sticky.batch_closed()
            self.work(now)
            self._wait_for_room()

    def send_batch(self, topic: str, partition: Partition, batch: bytearray) -> None:
        """As `send`, a whole batch that is encoded already, with offsets from 0; it is the
        producer's from here on, and no codec is applied to it."""
        now = self._client.network.now()
        self._accumulator.add(now, (topic, partition), batch)
        self.work(now)
        self._wait_for_room()

    def flush(self) -> None:
        """Return once everything appended is written or given up."""
        self._accumulator.close_all()
        self._sender.accept()
        while not self._sender.idle:
            self.work(Instant(self._client.network.now() + LONGEST_POLL_NS))

    def work(self, until: Instant) -> None:
        """Send what is due and take answers in: those there are, or the first until then."""
        network = self._client.network
        now = network.now()
        self._accumulator.close_due(now)
        self._sender.accept()
        self._prepare()
        self._refresh()
        while sends := self._sender.poll(now, self._client.view):
            for send in sends:
                self._ask(send)
        deadlines = (self._sender.deadline(), self._accumulator.deadline(), until)
        wake = min(one for one in deadlines if one is not None)
        for outcome in self._client.poll(max(wake, now)):
            self._take(network.now(), outcome)

    def take_results(self) -> list[Result]:
        """What became of batches since the last call, each told once."""
        return self._sender.take_results()

    @property
    def identity(self) -> Identity | None:
        """None where repeats are not recognised."""
        return self._sender.identity

    def _wait_for_room(self) -> None:
        while not self._accumulator.has_room:
            self.work(Instant(self._client.network.now() + LONGEST_POLL_NS))

    def _identify(self) -> None:
        """Before anything is sent."""
        self._sender.identity = self._client.run(init_producer_id(self._client.view, None))

    def _prepare(self) -> None:
        """Before what is queued is looked through."""

    def _refresh(self) -> None:
        """Ask who leads now. Where nobody answers either, batches run into their own deadline."""
        if not self._sender.stale:
            return
        topics = set(self._sender.stale)
        self._sender.stale.clear()
        try:
            self._client.run(refresh(self._client.view, topics), self._settings.request_timeout_ns)
        except ClientError:
            self._sender.stale |= topics

    def _ask(self, send: Send) -> None:
        ticket = self._client.ask(send.call)
        assert ticket is not None, "the view knows every leader that it names"
        self._sent[ticket] = send

    def _take(self, now: Instant, outcome: Answered | Lost) -> None:
        send = self._sent.pop(outcome.ticket, None)
        if send is None:
            return
        if isinstance(outcome, Answered):
            self._sender.answered(now, send, outcome.message)
        else:
            self._sender.lost(now, send, outcome)
