"""What a transaction waits for, and who waits for it, in sentences, and what to do. No I/O.

What is known comes as values, the moment with them. The first reason is the one that hurts most.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from tidelog.clients.admin.leaders import name_of
from tidelog.clients.admin.open_transactions import OpenTransaction, Standing
from tidelog.clients.admin.transactions import DECIDED, DescribedTransaction, State
from tidelog.kernel.ids import TopicPartition
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.tools.output import counted, span
from tidelog.tools.reasons import Code, Reason

ABORTS_LATE_MS = 10_000
"""Kafka's coordinators look for transactions that are over their time every 10 s."""
NAMED_MAX = 5


class Verdict(StrEnum):
    """What is to be thought of a transaction that is open in a partition."""

    OPEN = "open"
    OVERDUE = "overdue"
    MARKER_OWED = "marker-owed"
    HANGING = "hanging"


class Ends(Struct, frozen=True):
    """How far a partition's readers get: of committed records, and of all."""

    stable: int
    end: int

    @property
    def held(self) -> int:
        return max(self.end - self.stable, 0)


class Readers(Struct, frozen=True):
    """What readers of committed records meet in one partition."""

    partition: TopicPartition
    ends: Ends
    open_here: Sequence[OpenTransaction] = ()
    """By offset."""


class Seen(Struct, frozen=True):
    """All that is known of one transactional id."""

    known: DescribedTransaction
    open_here: Sequence[OpenTransaction] = ()
    """Of its producer, in any partition."""
    unseen: Sequence[TopicPartition] = ()
    """Partitions of the transaction whose leaders do not answer, or that have none."""
    ends: Mapping[TopicPartition, Ends] = {}
    """Of partitions where something is open."""


# -- one transaction that is open in a partition ------------------------------------------------


def verdict(one: OpenTransaction, now: int) -> Verdict:
    match one.standing:
        case Standing.UNKNOWN | Standing.LEFT_OUT:
            return Verdict.HANGING
        case Standing.DECIDED:
            return Verdict.MARKER_OWED
        case Standing.UNDECIDED:
            assert one.transaction is not None
            return Verdict.OVERDUE if late_ms(one.transaction, now) > 0 else Verdict.OPEN


def late_ms(known: DescribedTransaction, now: int) -> int:
    """How long ago its coordinator should have ended it; below 0 where that is to come."""
    age = age_ms(known, now)
    return 0 if age is None else age - known.timeout_ms - ABORTS_LATE_MS


def age_ms(known: DescribedTransaction, now: int) -> int | None:
    return None if known.started is None else now - known.started


def idle_ms(one: OpenTransaction, now: int) -> int | None:
    """Since its producer last wrote there, as far as its records tell."""
    stamp = one.producer.last_timestamp
    return None if stamp is None else now - stamp


def end_it(one: OpenTransaction, now: int, there: str = "") -> str | None:
    """The command that ends what does not end by itself; None where somebody is at it. `there`
    names the cluster."""
    match verdict(one, now):
        case Verdict.HANGING:
            place = shlex.quote(f"{one.partition[0]}:{one.partition[1]}")
            return f"tidelog txn abort {place} --start-offset {one.start}{there}"
        case Verdict.OVERDUE:
            assert one.transaction is not None
            return abort_all(one.transaction, there)
        case Verdict.OPEN | Verdict.MARKER_OWED:
            return None


def abort_all(known: DescribedTransaction, there: str = "") -> str:
    """The command that has its coordinator abort it everywhere."""
    return f"tidelog txn abort {_word(known)}{there}"


def look_at_it(known: DescribedTransaction, there: str = "") -> str:
    """The command that says more."""
    return f"tidelog why txn {_word(known)}{there}"


def _word(known: DescribedTransaction) -> str:
    return shlex.quote(known.transactional_id)


def whose(one: OpenTransaction) -> str:
    """As a part of a sentence."""
    producer = f"producer {one.producer.producer_id}, epoch {one.producer.producer_epoch}"
    if one.transaction is None:
        return f"a transaction of {producer}"
    return f"transaction {one.transaction.transactional_id!r} ({producer})"


def why_open(one: OpenTransaction, now: int) -> str:
    """What becomes of it, as the end of a sentence about it."""
    known = one.transaction
    match one.standing:
        case Standing.UNKNOWN:
            return f"which no coordinator knows, so that nobody will end it{_idle(one, now)}"
        case Standing.LEFT_OUT:
            assert known is not None
            ended = f"takes it for ended ({known.state})"
            says = "does not count this partition in" if known.is_unended else ended
            return f"whose coordinator {says}, so that nobody will end it{_idle(one, now)}"
        case Standing.DECIDED | Standing.UNDECIDED:
            assert known is not None
            return f"which {waits_for(known, now)}"


def _idle(one: OpenTransaction, now: int) -> str:
    idle = idle_ms(one, now)
    return "" if idle is None else f"; its last record is {span(idle)} old"


# -- a transaction as a whole -------------------------------------------------------------------


_OVER: Mapping[str, str] = {
    State.EMPTY: "has not begun: nothing was written since its producer came",
    State.COMPLETE_COMMIT: "is over: it was committed",
    State.COMPLETE_ABORT: "is over: it was aborted",
    State.DEAD: "is over, and about to be forgotten",
    State.PREPARE_EPOCH_FENCE: "is about to be aborted: another producer took its id over",
}


def waits_for(
    known: DescribedTransaction, now: int, unmarked: Sequence[TopicPartition] = ()
) -> str:
    """What it does, and what it waits for; the end of a sentence about it."""
    if known.state == State.ONGOING:
        return f"is open{_since(known, now)}: {_its_end(known, now)}"
    if known.state in DECIDED:
        return f"{_decision(known)}, and waits until {_named(unmarked)} heard of it"
    return _OVER.get(known.state, f"is {known.state}")


def _decision(known: DescribedTransaction) -> str:
    return "is committed" if known.state == State.PREPARE_COMMIT else "is aborted"


def _its_end(known: DescribedTransaction, now: int) -> str:
    limit = f"time-out {known.timeout_ms / 1_000:g} s"
    if late_ms(known, now) > 0:
        return f"its coordinator, broker {known.coordinator}, should have aborted it ({limit})"
    age = age_ms(known, now)
    left = known.timeout_ms - (age or 0)
    soon = f"in {span(left)}" if left > 0 else "any moment"
    return f"its producer may still end it, else it is aborted {soon} ({limit})"


def _since(known: DescribedTransaction, now: int) -> str:
    age = age_ms(known, now)
    return "" if age is None else f" for {span(age)}"


def _named(partitions: Sequence[TopicPartition]) -> str:
    if not partitions:
        return "all of its partitions"
    names = [name_of(one) for one in partitions[:NAMED_MAX]]
    more = len(partitions) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


# -- why ----------------------------------------------------------------------------------------


def of_transaction(seen: Seen, now: int, there: str = "") -> list[Reason]:
    """What is the matter with it, the worst first; nothing where nothing is open."""
    known = seen.known
    found = [_hanging(one, now, there) for one in seen.open_here if one.hangs]
    if not known.is_unended:
        return found
    unmarked = [one.partition for one in seen.open_here if not one.hangs]
    unmarked += [one for one in seen.unseen if one not in unmarked]
    who = f"producer {known.producer_id}, epoch {known.producer_epoch}"
    waits = waits_for(known, now, unmarked)
    sentence = f"transaction {known.transactional_id!r} ({who}) {waits}"
    if known.state in DECIDED:
        whys = tuple(f"tidelog why partition {one[0]}:{one[1]}" for one in seen.unseen)
        return [*found, Reason(Code.MARKER_MISSING, sentence, whys[:1]), *_held_up(seen)]
    if known.state == State.ONGOING and late_ms(known, now) > 0:
        end = (abort_all(known, there),)
        return [*found, Reason(Code.OVERDUE_TRANSACTION, sentence, end), *_held_up(seen)]
    return [*found, Reason(Code.OPEN_TRANSACTION, sentence), *_held_up(seen)]


def _hanging(one: OpenTransaction, now: int, there: str) -> Reason:
    sentence = (
        f"{name_of(one.partition)} has records from offset {one.start} on of {whose(one)}, "
        f"{why_open(one, now)}"
    )
    remedy = end_it(one, now, there)
    assert remedy is not None
    return Reason(Code.HANGING_TRANSACTION, sentence, (remedy,))


def _held_up(seen: Seen) -> Iterator[Reason]:
    """Where it is the first that readers of committed records wait for; and the offsets in it."""
    for one in seen.open_here:
        ends = seen.ends.get(one.partition)
        name = name_of(one.partition)
        if one.hangs or ends is None or not ends.held:
            continue
        if one.partition[0] == OFFSETS_TOPIC:
            sentence = f"offsets that it commits for groups are pending, in {name}"
            yield Reason(Code.OFFSETS_PENDING, sentence)
        elif ends.stable == one.start:
            wait = f"readers of committed records wait for it in {name} at offset {one.start}"
            far = f"{counted(ends.held, 'offset')} before the end"
            yield Reason(Code.READERS_WAIT, f"{wait}, {far}")


def of_readers(readers: Readers, now: int, there: str = "") -> list[Reason]:
    """Why readers of committed records do not get to a partition's end; nothing where they do."""
    ends = readers.ends
    if not ends.held:
        return []
    wait = (
        f"readers of committed records wait in {name_of(readers.partition)} at offset "
        f"{ends.stable}, {counted(ends.held, 'offset')} before the end"
    )
    first = next(iter(readers.open_here), None)
    if first is None or first.start > ends.stable:
        why = "the end of a transaction is not on all in-sync replicas yet"
        return [Reason(Code.READERS_WAIT, f"{wait}: {why}")]
    more = len(readers.open_here) - 1
    others = f"; {counted(more, 'other transaction')} open behind it" if more else ""
    remedy = end_it(first, now, there)
    if remedy is None:
        assert first.transaction is not None
        remedy = look_at_it(first.transaction, there)
    why = f"for {whose(first)}, {why_open(first, now)}{others}"
    return [Reason(_CODES[verdict(first, now)], f"{wait}: {why}", (remedy,))]


_CODES: Mapping[Verdict, Code] = {
    Verdict.OPEN: Code.OPEN_TRANSACTION,
    Verdict.OVERDUE: Code.OVERDUE_TRANSACTION,
    Verdict.MARKER_OWED: Code.MARKER_MISSING,
    Verdict.HANGING: Code.HANGING_TRANSACTION,
}
