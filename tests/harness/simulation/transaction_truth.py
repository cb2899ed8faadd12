"""What must be true of transactions in a simulated cluster: when a client hears something, in what
readers got, and in all logs when everything is over.

T1: a transaction has one outcome, the same in each partition, and one marker in each. T2: what was
told is so. T3: who was locked out changes nothing any more. T4: nothing of a transaction comes
after its end, and none stays open. T5: the coordinator's own log tells the same story. R1: a reader
of committed records gets all that is committed, and nothing else. T6, T7: replicas know the same of
producers, and their indexes what the log says was aborted. D12: each input that a group's offset
has passed came out exactly once.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from harness.logs.transactions import index_files, known_of
from harness.simulation.cluster import SimulatedCluster
from harness.simulation.transaction_states import check_steps, state_records
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.replica.replicas import Replica
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.records import iterate_batches, iterate_records, read_marker
from tidelog.wire.transactions import STATE_TOPIC

if TYPE_CHECKING:
    from harness.simulation.transactional import TransactionalClient

NEVER = 1 << 60
FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""What a client may hear whose transaction is not open any more."""


@dataclass(eq=False)
class Written:
    """One transaction, as its client knows it."""

    name: str
    producer_id: int
    epoch: int
    serial: int
    identified: int
    timeout_ms: int
    version: int = 1
    keys: set[TopicPartition] = field(default_factory=set)
    """Those that took data, or may have."""
    acked: list[tuple[TopicPartition, int, int]] = field(default_factory=list)
    """Where, at which offset, which checksum."""
    added_at: Instant | None = None
    """When it began to be known to the coordinator, at the earliest."""
    offset: int | None = None
    """Of the group, if it commits one."""
    asked: bool | None = None
    """To commit, or to abort."""
    told: bool | None = None
    """That this is how it ended."""


class Entry(NamedTuple):
    """One batch of a log."""

    offset: int
    end: int
    producer_id: int
    epoch: int
    transactional: bool
    marker: bool | None
    """Of a control batch: whether it commits."""
    coordinator_epoch: int
    values: tuple[bytes, ...]


class Seen(NamedTuple):
    """What a reader of committed records got between two offsets."""

    key: TopicPartition
    start: int
    end: int
    values: tuple[tuple[int, bytes], ...]


@dataclass
class _Walk:
    """What a log has said so far."""

    open: dict[int, list[Entry]] = field(default_factory=dict)
    """By producer: what has no outcome yet."""
    ends: dict[int, Entry] = field(default_factory=dict)
    """By producer: its last marker."""
    committed: list[tuple[int, bytes]] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """First offset, producer, and the offset of the marker."""
    coordinator: int = -1


class TransactionTruth:
    """Remembers what clients were told and readers got; `check` holds it against the logs."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self.written: dict[int, Written] = {}
        self.seen: list[Seen] = []
        self.outcomes: dict[int, dict[TopicPartition, bool]] = {}
        """Of each transaction, where it ended how; once `check` has looked."""
        self.committed: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        self.gone: set[str] = set()
        """Topics that somebody has asked to delete."""
        self._identities: dict[tuple[int, int], str] = {}
        self._latest: dict[str, tuple[int, int]] = {}
        self._asking: dict[str, list[list[int]]] = {}
        """When each id was asked for and given, in the count of `_events`."""
        self._events = 0
        self._fences: list[tuple[int, int, dict[TopicPartition, int]]] = []
        """Producer, epoch, and where each log ended at most when that was given."""

    # -- what clients are told

    def asks_for_id(self, name: str) -> list[int]:
        """When that began, and when it was over."""
        self._events += 1
        asking = [self._events, NEVER]
        self._asking.setdefault(name, []).append(asking)
        return asking

    def identified(self, client: "TransactionalClient", asking: list[int]) -> None:
        who = (client.producer_id, client.epoch)
        assert who not in self._identities, f"T3: {who} was given twice"
        self._identities[who] = client.name
        self._events += 1
        client.identified = asking[1] = self._events
        # Of two who ask together the later epoch may be told first.
        self._latest[client.name] = max(self._latest.get(client.name, (-1, -1)), who)
        self._fences.append((*who, self._ends()))

    def moved_on(self, client: "TransactionalClient") -> None:
        """Under version 2 the end of its transaction gave it another epoch."""
        who = (client.producer_id, client.epoch)
        assert who not in self._identities, f"T3: {who} was given twice"
        self._identities[who] = client.name
        self._latest[client.name] = max(self._latest.get(client.name, (-1, -1)), who)

    def is_past(self, name: str, producer_id: int, epoch: int) -> bool:
        """Whether a later producer of this id was told who it is."""
        return self._latest.get(name, (-1, -1)) > (producer_id, epoch)

    def begun(self, client: "TransactionalClient") -> Written:
        written = Written(
            client.name,
            client.producer_id,
            client.epoch,
            len(self.written),
            client.identified,
            client.timeout_ms,
            client.version,
        )
        self.written[written.serial] = written
        return written

    def acked(self, written: Written, key: TopicPartition, offset: int, crc: int) -> None:
        written.acked.append((key, offset, crc))

    def refused(self, client: "TransactionalClient", written: Written, code: ErrorCode) -> None:
        """Only who was locked out, or was too slow, may be."""
        assert code in FENCED, f"{client.name} was told {code.name}"
        asked_since = any(end > written.identified for _, end in self._asking[written.name])
        since = written.added_at
        limit = ms(written.timeout_ms)
        too_slow = since is not None and self.cluster.now - since >= limit
        assert asked_since or too_slow, f"T2: {written} was told {code.name} for no reason"

    def ended(self, written: Written, *, committed: bool) -> None:
        written.told = committed

    def _ends(self) -> dict[TopicPartition, int]:
        """Also of logs whose brokers are dead: they come back."""
        return {
            key: max((copy.end for copy in truth.copies.values()), default=0)
            for key, truth in self.cluster.witness.truths.items()
        }

    # -- what readers get

    def read(self, key: TopicPartition, start: int, found: k01.PartitionData) -> None:
        """The answer to a fetch of committed records."""
        if found.error_code or not found.records:
            return
        assert isinstance(found.records, bytes | memoryview)
        values, end = _visible(memoryview(found.records), found.aborted_transactions or ())
        limit = found.last_stable_offset
        assert end <= limit, f"R1: {key} was read to {end}, above {limit}"
        seen = tuple(one for one in values if one[0] >= start)
        self.seen.append(Seen(key, start, end, seen))

    # -- the end

    def check(self) -> None:
        """All is healed, and every transaction had the time to end."""
        self.outcomes.clear()
        for key in self._keys():
            self._check_log(key, list(entries_of(self._leader(key))))
        for key in self._keys(of_state=True):
            epochs = [one.epoch for one in entries_of(self._leader(key))]
            assert epochs == sorted(epochs), f"T3: {key}: a past coordinator wrote: {epochs}"
            if STATE_TOPIC not in self.cluster.witness.unwatched:  # as compacted topics are
                check_steps(state_records(self._leader(key)))
        self._check_outcomes()
        self._check_acked()
        self._check_readers()

    def _keys(self, *, of_state: bool = False) -> Iterator[TopicPartition]:
        for name, topic in self.cluster.image.names.items():
            if (name == STATE_TOPIC) == of_state:
                for partition in range(len(topic.partitions)):
                    yield name, Partition(partition)

    def _leader(self, key: TopicPartition) -> Replica:
        leader = self.cluster.view(*key).leader
        replica = self.cluster.replica(leader, *key)
        end = replica.log.last_stable_offset(replica.high_watermark)
        assert end == replica.high_watermark, f"T4: {key} can be read up to {end} only"
        return replica

    def _check_log(self, key: TopicPartition, log: list[Entry]) -> None:
        seen = _Walk()
        for entry in log:
            self._check_fences(key, entry)
            if entry.marker is not None:
                self._check_marker(key, entry, seen)
            elif entry.transactional:
                last = seen.ends.get(entry.producer_id)
                late = last is not None and last.epoch > entry.epoch
                assert not late, f"T4: {entry} in {key} comes after {last}"
                seen.open.setdefault(entry.producer_id, []).append(entry)
            else:
                seen.committed += _numbered([entry])
        assert not seen.open, f"T4: {key}: never ended: {seen.open}"
        self.committed[key] = sorted(seen.committed)
        self._check_replicas(key, seen.aborted)

    def _check_replicas(self, key: TopicPartition, aborted: list[tuple[int, int, int]]) -> None:
        replicas = [self.cluster.replica(one, *key) for one in self.cluster.view(*key).replicas]
        known = [known_of(one.log.producers) for one in replicas]
        assert all(one == known[0] for one in known), f"T6: {key}: {known}"
        for replica in replicas:
            told = [(one[0], one[1], one[2]) for one in index_files(replica.log)]
            assert told == aborted, f"T7: {key}: {told} in place of {aborted}"

    def _check_marker(self, key: TopicPartition, entry: Entry, seen: "_Walk") -> None:
        assert entry.coordinator_epoch >= seen.coordinator, f"T1: a past coordinator's {entry}"
        seen.coordinator = entry.coordinator_epoch
        batches = seen.open.pop(entry.producer_id, [])
        self._check_end(key, entry, batches, seen.ends.get(entry.producer_id))
        seen.ends[entry.producer_id] = entry
        if entry.marker:
            seen.committed += _numbered(batches)
        elif batches:
            seen.aborted.append((batches[0].offset, entry.producer_id, entry.offset))

    def _check_end(
        self, key: TopicPartition, end: Entry, batches: list[Entry], before: Entry | None
    ) -> None:
        same = before is not None and (before.epoch, before.marker) == (end.epoch, end.marker)
        assert batches or not same, f"T1: {key}: {end} is there twice, as {before}"
        assert all(one.epoch <= end.epoch for one in batches), f"T1: {key}: {end} ends {batches}"
        if key[0] == OFFSETS_TOPIC:
            return
        serials = {_serial(value) for one in batches for value in one.values}
        assert len(serials) <= 1, f"T1: {key}: {end} ends the transactions {serials}"
        for serial in serials:
            written = self.written[serial]
            least = written.epoch + written.version - 1
            is_past = end.producer_id == written.producer_id and end.epoch < least
            assert not is_past, f"T1: {key}: {end} could end a later transaction than {written}"
            ended = self.outcomes.setdefault(serial, {})
            assert key not in ended, f"T1: {key}: transaction {serial} ended twice"
            assert end.marker is not None
            ended[key] = end.marker

    def _check_fences(self, key: TopicPartition, entry: Entry) -> None:
        if key[0] in self.cluster.witness.unwatched:
            return
        for producer_id, epoch, ends in self._fences:
            if entry.producer_id == producer_id and entry.epoch < epoch:
                assert entry.offset < ends.get(key, 0), (
                    f"T3: {key}: {entry} came after epoch {epoch} was given"
                )

    def _check_outcomes(self) -> None:
        for serial, written in self.written.items():
            ended = self.outcomes.get(serial, {})
            outcomes = set(ended.values())
            assert len(outcomes) <= 1, f"T1: {written} ended as {ended}"
            if True in outcomes:
                assert written.asked, f"T1: {written} is committed, and nobody asked for it"
            if written.told is not None:
                assert outcomes <= {written.told}, f"T2: {written} ended as {ended}"
            if written.told:
                left = {key for key in written.keys if key[0] not in self.gone}
                assert left <= set(ended) <= written.keys, f"T2: {written} ended in {ended}"

    def _check_acked(self) -> None:
        """What was acknowledged is there, where its transaction came true."""
        for written in self.written.values():
            if written.told:
                watched = (
                    one for one in written.acked if one[0][0] not in self.cluster.witness.unwatched
                )
                for key, offset, crc in watched:
                    truth = self.cluster.witness.truth(key)
                    assert truth.has(offset, crc), f"T2: {written} lost {offset} of {key}"

    def _check_readers(self) -> None:
        for one in self.seen:
            if one.key[0] in self.gone:
                continue
            there = tuple(
                found for found in self.committed[one.key] if one.start <= found[0] < one.end
            )
            assert one.values == there, f"R1: {one} in place of {there}"

    def check_inputs(self, passed: int) -> None:
        """The group's offset is there: so many inputs came out, each once."""
        numbers = Counter(
            number
            for key, found in self.committed.items()
            if key[0] != OFFSETS_TOPIC
            for number in (_number(value) for _, value in found)
            if number >= 0
        )
        twice = [number for number, count in numbers.items() if count > 1]
        lost = [number for number in range(passed) if number not in numbers]
        early = [number for number in numbers if number >= passed]
        wrong = [*twice, *lost, *early]
        assert not wrong, f"D12: of {passed}: {twice=} {lost=} {early=}"


def entries_of(replica: Replica) -> Iterator[Entry]:
    """All of its log below the high watermark."""
    log, at = replica.log, replica.log.start
    while at < replica.high_watermark:
        found = log.read(at, 1 << 30, replica.high_watermark, min_one=True)
        assert found is not None
        for header, batch in iterate_batches(found.file.read(found.position, found.size)):
            at = header.next_offset
            marker = read_marker(header, batch) if header.is_control else None
            yield Entry(
                header.base_offset,
                header.next_offset,
                header.producer_id,
                header.producer_epoch,
                header.is_transactional,
                None if marker is None else marker.committed,
                -1 if marker is None else marker.coordinator_epoch,
                tuple(one.value or b"" for one in iterate_records(batch)),
            )


def _visible(
    data: memoryview, aborted: Sequence[k01.AbortedTransaction]
) -> tuple[list[tuple[int, bytes]], int]:
    """What a consumer of committed records makes of an answer, and where it goes on."""
    starts = sorted((one.first_offset, one.producer_id) for one in aborted)
    open_: set[int] = set()
    values: list[tuple[int, bytes]] = []
    end = 0
    for header, batch in iterate_batches(data):
        end = header.next_offset
        while starts and starts[0][0] <= header.last_offset:
            open_.add(starts.pop(0)[1])
        if header.is_control:
            open_.discard(header.producer_id)
        elif header.producer_id not in open_:
            values += [(one.offset, one.value or b"") for one in iterate_records(batch)]
    return values, end


def _numbered(batches: Iterable[Entry]) -> list[tuple[int, bytes]]:
    return [(one.offset + at, value) for one in batches for at, value in enumerate(one.values)]


def _serial(value: bytes) -> int:
    return int(value.split(b":")[0])


def _number(value: bytes) -> int:
    """Of an input that came out; below 0 where it is none."""
    _, colon, number = value.partition(b":")
    return int(number) if colon else -1
