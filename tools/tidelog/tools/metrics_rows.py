"""What is measured of a cluster: one row for each metric, and their values out of facts. No I/O.

Names follow Prometheus: a prefix, base units (seconds, bytes), `_total` for what only grows. Labels
are brokers, topics and partitions; nothing that grows without end, as segments or clients do.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from tidelog.node.ipc.layout import Slot, SlotState, Word
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.runtime.page_cache import KernelView
from tidelog.tools.disk_view import Broker, Flush, Replica, sums

GAUGE, COUNTER = "gauge", "counter"
_SECOND_NS, _SECOND_MS = 1_000_000_000, 1_000
_PREFIX: Final = "tidelog_"


class Metric(NamedTuple):
    """One row."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


class Family(NamedTuple):
    """A metric with its values, by those of its labels."""

    metric: Metric
    samples: tuple[tuple[tuple[str, ...], float], ...]


class Facts(Struct, frozen=True):
    """What was seen at one moment."""

    brokers: Sequence[Broker]
    slots: dict[int, Slot]
    """Of brokers that live."""
    coordinator: Slot | None
    """Of the one that leads."""
    transactions: Slot | None
    image: MetadataImage
    kernel: KernelView
    now_ms: int
    now_ns: int


_CLUSTER: Final = ()
_BROKER: Final = ("broker",)
_REPLICA: Final = ("broker", "topic", "partition")
_PARTITION: Final = ("topic", "partition")

_Words = tuple[tuple[Word, Metric], ...]


def _gauge(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(_PREFIX + name, GAUGE, labels, text)


def _counter(name: str, labels: tuple[str, ...], text: str) -> Metric:
    return Metric(f"{_PREFIX}{name}_total", COUNTER, labels, text)


OF_COORDINATOR: Final[_Words] = (
    (Word.CONTROLLER_EPOCH, _gauge("controller_epoch", _CLUSTER, "How often another one led.")),
    (Word.TOPICS, _gauge("topics", _CLUSTER, "Topics.")),
    (Word.PARTITIONS, _gauge("partitions", _CLUSTER, "Partitions of all topics.")),
    (
        Word.UNDER_REPLICATED,
        _gauge("under_replicated_partitions", _CLUSTER, "Some replica of them is not in sync."),
    ),
    (
        Word.UNDER_MIN_ISR,
        _gauge("under_min_isr_partitions", _CLUSTER, "Fewer are in sync than acks=all needs."),
    ),
    (Word.OFFLINE, _gauge("offline_partitions", _CLUSTER, "Nobody leads them.")),
)
OF_TRANSACTIONS: Final[_Words] = (
    (Word.TRANSACTIONS_OPEN, _gauge("transactions_open", _CLUSTER, "Transactions under way.")),
    (
        Word.TRANSACTIONS_COMMITTED,
        _counter("transactions_committed", _CLUSTER, "Since the coordinator's start."),
    ),
    (
        Word.TRANSACTIONS_ABORTED,
        _counter("transactions_aborted", _CLUSTER, "Since the coordinator's start."),
    ),
)
OF_BROKER: Final[_Words] = (
    (Word.LEADERS, _gauge("broker_leaders", _BROKER, "Partitions it leads.")),
    (Word.REPLICAS, _gauge("broker_replicas", _BROKER, "Partitions it has.")),
    (
        Word.NOT_COMPACTED,
        _gauge("broker_not_compacted_partitions", _BROKER, "Partitions whose compaction fails."),
    ),
    (Word.CONNECTIONS, _gauge("broker_connections", _BROKER, "Clients connected.")),
    (
        Word.CONNECTIONS_ACCEPTED,
        _counter("broker_connections_accepted", _BROKER, "Clients let in."),
    ),
    (Word.REQUESTS, _counter("broker_requests", _BROKER, "Requests of clients.")),
    (Word.BYTES_IN, _counter("broker_received_bytes", _BROKER, "From clients.")),
    (Word.BYTES_OUT, _counter("broker_sent_bytes", _BROKER, "To clients.")),
    (
        Word.FRAMES_REFUSED,
        _counter("broker_refused_frames", _BROKER, "Connections ended for what they sent."),
    ),
    (Word.PRODUCE_BATCHES, _counter("broker_produced_batches", _BROKER, "Appended by clients.")),
    (Word.PRODUCE_BYTES, _counter("broker_produced_bytes", _BROKER, "Of these batches.")),
    (Word.FETCH_REQUESTS, _counter("broker_fetch_requests", _BROKER, "Of consumers.")),
    (Word.FETCH_BYTES, _counter("broker_fetched_bytes", _BROKER, "Batches sent to consumers.")),
    (Word.FLUSHES, _counter("broker_flushes", _BROKER, "Rounds of flushes that went well.")),
    (Word.COLD_READS, _counter("broker_cold_reads", _BROKER, "Reads not from memory alone.")),
    (
        Word.HELD,
        _gauge("broker_cache_held_bytes", _BROKER, "In memory of logs that cache.keep bounds."),
    ),
    (
        Word.DROPPED,
        _counter("broker_cache_dropped_bytes", _BROKER, "Of these logs, for their bound."),
    ),
    (
        Word.DROPPED_BEHIND,
        _counter("broker_cache_dropped_behind_bytes", _BROKER, "Behind consumers that caught up."),
    ),
    (
        Word.WRITTEN_BACK,
        _counter("broker_written_back_bytes", _BROKER, "Given to the disk behind writers."),
    ),
)

UP: Final = _gauge("broker_up", _BROKER, "1: it serves clients; 0: it is stopped, or fenced.")
HEARTBEAT: Final = _gauge(
    "broker_heartbeat_age_seconds", _BROKER, "Since its event loop last said that it turns."
)
BROKER_POLICY: Final = _gauge(
    "broker_flush_policy_info", (*_BROKER, "policy"), "1: the policy of topics that set none."
)
BROKER_FLUSH_AGE: Final = _gauge(
    "broker_last_flush_age_seconds", _BROKER, "Since its last flush was over."
)
BROKER_FLUSH_TOOK: Final = _gauge(
    "broker_last_flush_duration_seconds", _BROKER, "From its begin until the event loop heard."
)
SIZE: Final = _gauge("log_size_bytes", _REPLICA, "All segments of a replica.")
CACHED: Final = _gauge("log_cached_bytes", _REPLICA, "In the page cache.")
DIRTY: Final = _gauge("log_dirty_bytes", _REPLICA, "Not written back by the kernel yet.")
UNFLUSHED: Final = _gauge("log_unflushed_bytes", _REPLICA, "What a power loss may take.")
DURABLE: Final = _gauge(
    "log_durable_offset", _REPLICA, "The first one that is not on stable storage."
)
EXACT: Final = _gauge(
    "log_durable_offset_exact", _REPLICA, "1: it is that; 0: it is that at least."
)
OLDEST: Final = _gauge(
    "log_oldest_unflushed_age_seconds", _REPLICA, "Age of the oldest record not flushed."
)
FLUSH_AGE: Final = _gauge(
    "log_last_flush_age_seconds", _REPLICA, "Since the last flush of a replica was over."
)
FLUSH_TOOK: Final = _gauge("log_last_flush_duration_seconds", _REPLICA, "What the disk took.")
POLICY: Final = _gauge("log_flush_policy_info", (*_REPLICA, "policy"), "1: the policy in force.")
LEADER: Final = _gauge("partition_leader", _PARTITION, "The broker that leads it; -1: none.")
EPOCH: Final = _gauge("partition_leader_epoch", _PARTITION, "How often another one led it.")
REPLICAS: Final = _gauge("partition_replicas", _PARTITION, "As many as it shall have.")
IN_SYNC: Final = _gauge("partition_in_sync_replicas", _PARTITION, "Of these, in sync.")
LOSSY: Final = _counter(
    "partition_lossy_elections", _PARTITION, "Leaders made that may lack acknowledged records."
)
LOST: Final = _counter("partition_lost_records", _PARTITION, "Known to be lost by them.")
MACHINE_DIRTY: Final = _gauge("machine_dirty_bytes", _CLUSTER, "Of all programs.")
MACHINE_WRITEBACK: Final = _gauge("machine_writeback_bytes", _CLUSTER, "On the way to disks.")
VM: Final = _gauge("machine_vm_setting", ("setting",), "The kernel's triggers, as in /proc/sys/vm.")

_Sample = tuple[tuple[str, ...], float]


def families(facts: Facts) -> list[Family]:
    """All that is known; a metric without a value is left out."""
    found = [
        *_words(OF_COORDINATOR, {(): facts.coordinator}),
        *_words(OF_TRANSACTIONS, {(): facts.transactions}),
        *_brokers(facts),
        *_words(OF_BROKER, {(str(one),): slot for one, slot in facts.slots.items()}),
        *_logs(facts),
        *_partitions(facts.image),
        *_machine(facts.kernel),
    ]
    return [one for one in found if one.samples]


def all_metrics() -> list[Metric]:
    """In the order in which they are told."""
    words = (*OF_COORDINATOR, *OF_TRANSACTIONS)
    return [
        *(metric for _, metric in words),
        *(UP, HEARTBEAT, BROKER_POLICY, BROKER_FLUSH_AGE, BROKER_FLUSH_TOOK),
        *(metric for _, metric in OF_BROKER),
        *(metric for metric, _ in _OF_LOG),
        POLICY,
        *(LEADER, EPOCH, REPLICAS, IN_SYNC, LOSSY, LOST),
        *(MACHINE_DIRTY, MACHINE_WRITEBACK, VM),
    ]


def _words(rows: _Words, slots: dict[tuple[str, ...], Slot | None]) -> Iterator[Family]:
    for word, metric in rows:
        yield Family(
            metric,
            tuple((key, float(slot[word])) for key, slot in slots.items() if slot is not None),
        )


def _brokers(facts: Facts) -> Iterator[Family]:
    names = [(str(one.broker_id), one) for one in facts.brokers]
    running = SlotState.RUNNING.name.lower()
    yield Family(UP, tuple(((name,), float(one.state == running)) for name, one in names))
    ages = ((one, (facts.now_ns - slot.heartbeat)) for one, slot in facts.slots.items())
    yield Family(HEARTBEAT, tuple(((str(one),), max(age, 0) / _SECOND_NS) for one, age in ages))
    yield Family(BROKER_POLICY, tuple(((name, one.flush_policy), 1.0) for name, one in names))
    flushes = [(name, one.last_flush) for name, one in names if one.last_flush is not None]
    yield Family(
        BROKER_FLUSH_AGE, tuple(((name,), last.age_ms / _SECOND_MS) for name, last in flushes)
    )
    yield Family(
        BROKER_FLUSH_TOOK, tuple(((name,), last.took_ms / _SECOND_MS) for name, last in flushes)
    )


def _age(at_ms: int | None, now_ms: int) -> float | None:
    return None if at_ms is None else max(now_ms - at_ms, 0) / _SECOND_MS


def _flush(last: Flush | None, value: Callable[[Flush], float]) -> float | None:
    return None if last is None else value(last) / _SECOND_MS


_OF_LOG: Final[tuple[tuple[Metric, Callable[[Replica, int], float | None]], ...]] = (
    (SIZE, lambda one, _: sums(one.segments).size),
    (CACHED, lambda one, _: sums(one.segments).cached),
    (DIRTY, lambda one, _: sums(one.segments).dirty),
    (UNFLUSHED, lambda one, _: sums(one.segments).unflushed),
    (DURABLE, lambda one, _: one.durable_offset),
    (EXACT, lambda one, _: None if one.durable_offset is None else float(one.is_exact)),
    (OLDEST, lambda one, now_ms: _age(one.oldest_at_ms, now_ms)),
    (FLUSH_AGE, lambda one, _: _flush(one.last_flush, lambda last: last.age_ms)),
    (FLUSH_TOOK, lambda one, _: _flush(one.last_flush, lambda last: last.took_ms)),
)


def _logs(facts: Facts) -> Iterator[Family]:
    logs = [
        ((str(broker.broker_id), one.topic, str(one.partition)), one)
        for broker in facts.brokers
        for one in broker.replicas
    ]
    for metric, value in _OF_LOG:
        values = ((key, value(one, facts.now_ms)) for key, one in logs)
        yield Family(metric, _known(values))
    yield Family(POLICY, tuple(((*key, one.flush_policy), 1.0) for key, one in logs))


def _partitions(image: MetadataImage) -> Iterator[Family]:
    views = [
        ((topic.name, str(index)), view)
        for topic in image.names.values()
        for index, view in enumerate(topic.partitions)
    ]
    yield Family(LEADER, tuple((key, float(view.leader)) for key, view in views))
    yield Family(EPOCH, tuple((key, float(view.leader_epoch)) for key, view in views))
    yield Family(REPLICAS, tuple((key, float(len(view.replicas))) for key, view in views))
    yield Family(IN_SYNC, tuple((key, float(len(view.isr))) for key, view in views))
    yield Family(LOSSY, tuple((key, float(view.lossy_elections)) for key, view in views))
    yield Family(LOST, tuple((key, float(view.lost_records)) for key, view in views))


def _machine(kernel: KernelView) -> Iterator[Family]:
    yield Family(MACHINE_DIRTY, _known([((), kernel.dirty)]))
    yield Family(MACHINE_WRITEBACK, _known([((), kernel.writeback)]))
    yield Family(VM, tuple(((name,), float(value)) for name, value in kernel.triggers.items()))


def _known(values: Iterable[tuple[tuple[str, ...], float | None]]) -> tuple[_Sample, ...]:
    return tuple((key, float(value)) for key, value in values if value is not None)


def rows(found: Iterable[Family]) -> list[dict[str, object]]:
    """As JSON has them."""
    return [
        {
            "name": metric.name,
            "type": metric.kind,
            "help": metric.help,
            "samples": [
                {"labels": dict(zip(metric.labels, key, strict=True)), "value": value}
                for key, value in samples
            ],
        }
        for metric, samples in found
    ]
