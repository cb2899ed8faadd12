"""What is on disk and what is not yet, in sums and rows, out of facts about segments. No I/O."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct


class Flush(Struct, frozen=True):
    """One that is over."""

    age_ms: float
    took_ms: float


class Segment(Struct, frozen=True):
    """One segment's file of batches."""

    file: str
    size: int
    cached: int | None
    """None: nobody tells; so below."""
    dirty: int | None
    stable: int | None
    """Its first so many bytes are on stable storage, and its name is."""
    last_flush: Flush | None = None
    """Of its file alone: how long the disk took."""

    @property
    def unflushed(self) -> int | None:
        return None if self.stable is None else self.size - self.stable


class Replica(Struct, frozen=True):
    """One partition on one broker."""

    topic: str
    partition: int
    log_dir: str
    flush_policy: str
    segments: tuple[Segment, ...]
    durable_offset: int | None = None
    """The first one that is not on stable storage."""
    is_exact: bool = True
    """Else at least it: the recovery point, as it was written last."""
    oldest_at_ms: int | None = None
    """The timestamp of the first record that is not on stable storage."""

    @property
    def last_flush(self) -> Flush | None:
        """The latest of its segments'."""
        found = (one.last_flush for one in self.segments if one.last_flush is not None)
        return min(found, key=lambda one: one.age_ms, default=None)


class Broker(Struct, frozen=True):
    """What it says of itself, and its replicas."""

    broker_id: int
    state: str
    flush_policy: str
    replicas: tuple[Replica, ...]
    last_flush: Flush | None = None
    faults: tuple[Mapping[str, object], ...] = ()
    """What was done to its disks on purpose."""
    sick: tuple[str, ...] = ()
    """The same, for people."""


class Sums(Struct, frozen=True):
    """Of some segments; None where it is not known of each."""

    size: int
    cached: int | None
    dirty: int | None
    unflushed: int | None


Row = dict[str, object]


def sums(segments: Iterable[Segment]) -> Sums:
    """Of all of them."""
    found = tuple(segments)
    return Sums(
        sum(one.size for one in found),
        _sum(one.cached for one in found),
        _sum(one.dirty for one in found),
        _sum(one.unflushed for one in found),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def first_unstable(segments: Sequence[Segment]) -> int | None:
    """Which segment the durable end lies in: the first that is not stable as a whole, else the
    last; None where there is none, or the ledger does not say."""
    for number, one in enumerate(segments):
        if one.stable is None:
            return None
        if one.stable < one.size:
            return number
    return len(segments) - 1 if segments else None


def broker_row(broker: Broker, now_ms: int, *, segments: bool) -> Row:
    """As JSON has it."""
    everything = (one for replica in broker.replicas for one in replica.segments)
    ages = [one.oldest_at_ms for one in broker.replicas if one.oldest_at_ms is not None]
    return {
        "id": broker.broker_id,
        "state": broker.state,
        "flush_policy": broker.flush_policy,
        **_counted(sums(everything)),
        "oldest_unflushed_ms": _age(min(ages, default=None), now_ms),
        "last_flush": _flush(broker.last_flush),
        "faults": list(broker.faults),
        "partitions": [replica_row(one, now_ms, segments=segments) for one in broker.replicas],
    }


def replica_row(replica: Replica, now_ms: int, *, segments: bool) -> Row:
    """As JSON has it."""
    row: Row = {
        "topic": replica.topic,
        "partition": replica.partition,
        "log_dir": replica.log_dir,
        "flush_policy": replica.flush_policy,
        **_counted(sums(replica.segments)),
        "durable_offset": replica.durable_offset,
        "durable_offset_exact": replica.is_exact,
        "oldest_unflushed_ms": _age(replica.oldest_at_ms, now_ms),
        "last_flush": _flush(replica.last_flush),
    }
    if segments:
        row["segments"] = [_segment_row(one) for one in replica.segments]
    return row


def _segment_row(one: Segment) -> Row:
    counted = Sums(one.size, one.cached, one.dirty, one.unflushed)
    return {"file": one.file, **_counted(counted), "last_flush": _flush(one.last_flush)}


def _flush(last: Flush | None) -> Row | None:
    return None if last is None else {"age_ms": last.age_ms, "took_ms": last.took_ms}


def _counted(found: Sums) -> Row:
    return {
        "size_bytes": found.size,
        "cached_bytes": found.cached,
        "dirty_bytes": found.dirty,
        "unflushed_bytes": found.unflushed,
    }


def _age(at_ms: int | None, now_ms: int) -> int | None:
    """Producers write timestamps: one of the future has no age yet."""
    return None if at_ms is None else max(now_ms - at_ms, 0)


def trigger_words(triggers: Mapping[str, int]) -> list[str]:
    """The kernel's own rules for people, those that hold.

    >>> trigger_words({"dirty_background_ratio": 10, "dirty_background_bytes": 0})
    ['begins above 10 % of memory (vm.dirty_background_ratio)']
    """
    words = []
    for kind, does in (("dirty_background", "begins"), ("dirty", "holds writers up")):
        size, ratio = triggers.get(f"{kind}_bytes"), triggers.get(f"{kind}_ratio")
        if size:
            words.append(f"{does} above {size} bytes (vm.{kind}_bytes)")
        elif ratio is not None:
            words.append(f"{does} above {ratio} % of memory (vm.{kind}_ratio)")
    for name, does in (
        ("dirty_expire_centisecs", "takes what is older than"),
        ("dirty_writeback_centisecs", "looks every"),
    ):
        if name in triggers:
            words.append(f"{does} {triggers[name] / 100:g} s (vm.{name})")
    return words
