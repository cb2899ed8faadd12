"""The short way of produce requests and the general one: same answers, same effects.

Two brokers get the same history. One keeps what requests say (`produce_again.py`), the other
forgets it at once, so that every request goes the general way.
"""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from harness.clients.produce_raw import batch_of
from harness.clients.raw_socket import request_bytes
from harness.faults.mutation import mutated
from harness.machines.brokers import FakeClient, HandlerBench
from harness.machines.peers import Peer, change, replicated, shown
from harness.machines.transaction_bench import answer, end_transaction
from harness.suite.budgets import Histories
from tidelog.kernel.ids import Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.topic_names import INTERNAL_TOPICS
from tidelog.node.api.produce_again import ProduceAgain
from tidelog.node.api.produce_in_transaction import is_transactional
from tidelog.node.net.client import Client, CloseConnectionError
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.header import RequestHeader
from tidelog.wire.messages.k00_produce import (
    API,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tidelog.wire.records import TRANSACTIONAL_BIT, Origin

ENOUGH_TO_SEE_ALL = 6
"""Among this many histories are batches of transactions that go the short way."""
STEPS = 1_400
CONNECTIONS = 3
START_MS = 1_700_000_000_000
TOPICS = ("plain", "plain", "plain", "shared", "shared", "stamped", "packed", "compacted", "broken")
NAMES = ("tx",) * 12 + ("", "another", "n" * 126, "n" * 127, "n" * 255, "n" * 400)
CODES = (0,) * 8 + (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.CONCURRENT_TRANSACTIONS)
NOBODYS = Uuid(b"\x5a" * 16)
ODD_TOPICS = (min(INTERNAL_TOPICS), "nowhere", "long" * 40, "")


class Forgetful(ProduceAgain):
    """Learns nothing."""

    def learn(self, header: RequestHeader, request: ProduceRequest, frame: memoryview) -> None:
        assert len(frame) > header.body_position, request


class Counting(ProduceAgain):
    """Knows how many it took."""

    taken = 0
    of_transactions = 0

    def _take(
        self, client: Client, shape: Any, number: int, records: memoryview, now: Instant
    ) -> bool:
        taken = super()._take(client, shape, number, records, now)
        self.taken += taken
        self.of_transactions += taken and is_transactional(records)
        return taken


class Side:
    """One of the two brokers, and all that can be seen of it."""

    def __init__(self, directory: Path, kind: type[ProduceAgain]) -> None:
        directory.mkdir()
        self.directory = directory
        self.bench = bench = HandlerBench(directory)
        (directory / "broken-0").write_text("where a log should be")
        self.way = kind(bench.broker)
        bench.dispatcher._again = self.way
        bench.topic("plain", 2)
        bench.topic("broken")
        bench.topic(min(INTERNAL_TOPICS))
        bench.topic("stamped", message_timestamp_type="LogAppendTime")
        bench.topic("packed", compression_type="zstd")
        bench.topic("compacted", cleanup_policy="compact")
        self.peer = Peer(bench, 1)
        self.shared: Uuid = replicated(bench, "shared", shown(0, 1), min_in_sync=2)
        self.peer.follow(self.shared)
        self.changes = 0
        self.answered: set[int] = set()
        """Questions to the transaction coordinator that have their answer."""
        self.clients = [FakeClient() for _ in range(CONNECTIONS)]

    def ask(self, at: int, frame: bytes) -> str:
        """One request of one connection; a word on how it ended there."""
        client = self.clients[at]
        buffer = bytearray(frame)
        if client.session.closing or client.closed is not None:
            client = self.clients[at] = FakeClient()
        if not client.session.may_begin(barrier=False):
            return "held back"
        try:
            self.bench.dispatcher.begin(client, memoryview(buffer), self.bench.now)
        except (CloseConnectionError, WireError) as failure:
            client.close(str(failure))
            return str(failure)
        finally:
            buffer[:] = bytes(len(buffer))
        return ""

    def end_of_shared(self) -> int:
        replica = self.bench.broker.replicas.find("shared", 0)
        assert replica is not None
        return int(replica.log.end)

    def answer_of_coordinator(self, draw: float, code: int) -> None:
        """One of the questions that wait is answered."""
        waiting = self.bench.transactions.done
        open_ones = [at for at in range(len(waiting)) if at not in self.answered]
        if open_ones:
            at = open_ones[int(draw * len(open_ones))]
            self.answered.add(at)
            answer(self.bench, code, at)

    def end_transaction(self, topic: str, producer_id: int, *, committed: bool) -> None:
        replica = self.bench.broker.replicas.find(topic, 0)
        known = None if replica is None else replica.log.producers.get(producer_id)
        if replica is not None and replica.leader is not None:
            epoch = 0 if known is None else known.epoch
            end_transaction(
                self.bench, topic, producer_id=producer_id, epoch=epoch, committed=committed
            )

    def lose_or_find_in_sync(self, *in_sync: int) -> None:
        self.changes += 1
        change(self.bench, self.shared, shown(*in_sync, change=self.changes))

    def seen(self) -> object:
        bench = self.bench
        logs = [
            (one.key, one.log.end, one.high_watermark, one.log.size_bytes)
            for one in bench.broker.replicas
        ]
        counters, waiting = bench.broker.counters, bench.broker.waiting.count
        frames = [[self._placeless(one) for one in client.frames()] for client in self.clients]
        closed = [client.closed for client in self.clients]
        asked = [frame for _, frame in bench.transactions.forwarded]
        failures = [(key, self._placeless(text.encode())) for key, text in bench.failures]
        return frames, closed, logs, repr(counters), waiting, failures, asked

    def _placeless(self, said: bytes) -> bytes:
        """Errors of the disk name files; both folders' names are equally long."""
        return said.replace(str(self.directory).encode(), b"")

    def ids(self) -> dict[str, Uuid]:
        return {one.name: topic_id for topic_id, one in self.bench.image.topics.items()}

    def files(self) -> dict[str, bytes]:
        found = self.directory.glob("*/*.log")
        return {str(one.relative_to(self.directory)): one.read_bytes() for one in found}


class History:
    """What both sides live through, drawn from a seed."""

    def __init__(self, seed: int, ids: Mapping[str, Uuid]) -> None:
        self._random = Random(seed)
        self._ids = ids
        self._sequence: dict[tuple[str, int, int, int], int] = {}
        self._sent: list[bytes] = []

    def frame(self) -> bytes:
        """A request's frame without its size."""
        random = self._random
        if self._sent and random.random() < 0.15:
            frame = mutated(random.choice(self._sent), random)
            return frame if frame[:2] == b"\0\0" and len(frame) >= 8 else self._sent[-1]
        if random.random() < 0.25:
            return self._ordinary()
        odd = random.random() < 0.1
        topic = random.choice(ODD_TOPICS if odd else TOPICS)
        partition = (
            random.choice((0, 0, 0, 1)) if topic == "plain" else random.choice((0,) * 9 + (7,))
        )
        transactional = random.random() < 0.2
        message = ProduceRequest(
            transactional_id=random.choice(NAMES) if transactional else None,
            acks=2 if random.random() < 0.02 else random.choice((-1, -1, -1, 1, 1, 0)),
            timeout_ms=random.choice((5, 5, 5, 5, 50)),
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=self._id_of(topic),
                    partition_data=[
                        PartitionProduceData(
                            index=partition,
                            records=self._batch((topic, partition), transactional=transactional),
                        )
                    ]
                    * random.choice((1,) * 20 + (0, 2)),
                )
            ]
            * random.choice((1,) * 20 + (0, 2)),
        )
        version = random.choice((6, 7, 8, 9, 9, 9, 11, 11, 12, 12, 13, 13))
        frame = request_bytes(API, version, message, random.randrange(2**31))[4:]
        self._sent = [*self._sent[-20:], frame]
        return frame

    def _id_of(self, topic: str) -> Uuid:
        return self._ids.get(topic, NOBODYS)

    def _ordinary(self) -> bytes:
        """As a producer in a transaction sends one after the other."""
        key = (self._random.choice(("plain", "shared", "stamped")), 0)
        data = PartitionProduceData(index=0, records=self._batch(key, transactional=True))
        message = ProduceRequest(
            transactional_id="tx",
            acks=-1,
            timeout_ms=5,
            topic_data=[
                TopicProduceData(name=key[0], topic_id=self._id_of(key[0]), partition_data=[data])
            ],
        )
        version = self._random.choice((8, 9, 11, 12, 13))
        return request_bytes(API, version, message, self._random.randrange(2**31))[4:]

    def _batch(self, key: tuple[str, int], *, transactional: bool) -> memoryview | None:
        random = self._random
        if random.random() < 0.03:
            return random.choice((None, memoryview(b""), memoryview(bytes(61))))
        values = [bytes(random.choice((0, 1, 20, 100, 17_000)))] * random.choice((1, 1, 3))
        origin = Origin()
        if transactional or random.random() < 0.5:
            producer = random.choice((7, 7, 8)) if transactional else 5
            epoch = random.choice((0,) * 80 + (1,))
            place = (*key, producer, epoch)
            sequence = self._sequence.get(place, 0)
            if random.random() < 0.8:
                self._sequence[place] = sequence + len(values)
            odd = random.random() < 0.05
            origin = Origin(producer, epoch, sequence, TRANSACTIONAL_BIT * (transactional ^ odd))
        batch = batch_of(
            *values,
            codec=random.choice((Codec.NONE,) * 6 + (Codec.LZ4, Codec.ZSTD)),
            timestamp=START_MS + random.choice((0, 0, 0, 10**9)),
            origin=origin,
        )
        if random.random() < 0.05:
            batch[random.randrange(len(batch))] ^= 0xFF
        if random.random() < 0.03:
            return memoryview(batch + batch)
        return memoryview(batch)

    def step(self, sides: list[Side]) -> None:
        """One event on both; its outcome must be the same."""
        chance = self._random.random()
        if chance < 0.15:
            self._transactions(sides)
        elif chance < 0.8:
            self._ask(sides)
        else:
            self._happen(sides, chance)

    def _ask(self, sides: list[Side]) -> None:
        at, frame = self._random.randrange(CONNECTIONS), self.frame()
        said = [side.ask(at, frame) for side in sides]
        assert said[0] == said[1], frame.hex()
        if self._random.random() < 0.7:
            self._word(sides)

    def _happen(self, sides: list[Side], chance: float) -> None:
        random = self._random
        in_sync = random.choice(((0,), (0, 1), (0, 1)))
        retiring = random.random() < 0.2
        end = random.randrange(sides[0].end_of_shared() + 1)
        for side in sides:
            if chance < 0.9:
                side.peer.ack(side.end_of_shared() if chance < 0.88 else end)
            elif chance < 0.95:
                side.bench.now = Instant(side.bench.now + ms(10))
                side.bench.broker.waiting.expire(side.bench.now)
            elif chance < 0.98:
                side.lose_or_find_in_sync(*in_sync)
            else:
                side.bench.broker.replicas.retiring = retiring

    def _transactions(self, sides: list[Side]) -> None:
        """The coordinator says a word, or ends something."""
        random = self._random
        if random.random() < 0.7:
            self._word(sides)
            return
        topic, producer = random.choice(TOPICS[:-1]), random.choice((7, 8))
        committed = random.random() < 0.5
        for side in sides:
            side.end_transaction(topic, producer, committed=committed)

    def _word(self, sides: list[Side]) -> None:
        draw, code = self._random.random(), self._random.choice(CODES)
        for side in sides:
            side.answer_of_coordinator(draw, code)


def test_both_ways_answer_and_do_the_same(tmp_path: Path, histories: Histories) -> None:
    taken = of_transactions = 0

    def both_ways(seed: int) -> None:
        nonlocal taken, of_transactions
        folder = tmp_path / str(seed)
        folder.mkdir()
        short, general = Side(folder / "one", Counting), Side(folder / "two", Forgetful)
        history = History(seed, short.ids())
        for step in range(STEPS):
            history.step([short, general])
            assert short.seen() == general.seen(), f"step {step}"
        assert short.files() == general.files()
        assert isinstance(short.way, Counting)
        taken += short.way.taken
        of_transactions += short.way.of_transactions
        short.bench.close()
        general.bench.close()

    ran = histories.run(both_ways)
    assert taken > ran * STEPS // 20, "too few went the short way"
    assert ran < ENOUGH_TO_SEE_ALL or of_transactions > ran, "too few of transactions did"
