"""What is said of transactions: what they wait for, who waits for them, and what ends them."""

from collections.abc import Sequence

import pytest

from tidelog.clients.admin.open_transactions import OpenTransaction
from tidelog.clients.admin.producers import ProducerState
from tidelog.clients.admin.transactions import DescribedTransaction, State
from tidelog.clients.cluster_view import PartitionView
from tidelog.kernel.ids import BrokerId, Epoch, Offset, Partition, TopicPartition
from tidelog.kernel.instant import WallMs
from tidelog.tools.output import Target
from tidelog.tools.reasons import Code, Reason
from tidelog.tools.transaction_reasons import (
    Ends,
    Readers,
    Seen,
    Verdict,
    end_it,
    of_readers,
    of_transaction,
    verdict,
    waits_for,
)
from tidelog.tools.view_reasons import of_view

ZERO: TopicPartition = ("t", Partition(0))
ONE: TopicPartition = ("t", Partition(1))
OFFSETS: TopicPartition = ("__consumer_offsets", Partition(3))
STARTED = WallMs(1_000_000)
TIMEOUT_MS = 60_000
SOON = STARTED + 12_000
LATE = STARTED + TIMEOUT_MS + 5_000
TOO_LATE = STARTED + TIMEOUT_MS + 10_001


def transaction(
    state: str = State.ONGOING, *partitions: TopicPartition, started: WallMs | None = STARTED
) -> DescribedTransaction:
    return DescribedTransaction(
        transactional_id="it's 1",
        state=state,
        producer_id=7,
        producer_epoch=3,
        timeout_ms=TIMEOUT_MS,
        started=started,
        partitions=partitions or (ZERO,),
        coordinator=2,
    )


def opened(
    known: DescribedTransaction | None,
    place: TopicPartition = ZERO,
    start: int = 10,
    stamp: WallMs | None = STARTED,
) -> OpenTransaction:
    producer = ProducerState(7, 3, 0, stamp, 1, Offset(start))
    return OpenTransaction(place, Offset(start), producer, known)


# -- what is to be thought of it ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "now", "thought", "remedy"),
    [
        (opened(transaction()), SOON, Verdict.OPEN, None),
        (opened(transaction()), LATE, Verdict.OPEN, None),
        (opened(transaction()), TOO_LATE, Verdict.OVERDUE, "tidelog txn abort 'it'\"'\"'s 1'"),
        (opened(transaction(started=None)), TOO_LATE, Verdict.OPEN, None),
        (opened(transaction(State.PREPARE_EPOCH_FENCE)), SOON, Verdict.OPEN, None),
        (opened(transaction(State.PREPARE_COMMIT)), TOO_LATE, Verdict.MARKER_OWED, None),
        (opened(transaction(State.PREPARE_ABORT)), TOO_LATE, Verdict.MARKER_OWED, None),
        (
            opened(transaction(State.COMPLETE_COMMIT)),
            SOON,
            Verdict.HANGING,
            "tidelog txn abort t:0 --start-offset 10",
        ),
        (opened(None), SOON, Verdict.HANGING, "tidelog txn abort t:0 --start-offset 10"),
    ],
)
def test_only_what_does_not_end_by_itself_gets_a_command_that_ends_it(
    one: OpenTransaction, now: int, thought: Verdict, remedy: str | None
) -> None:
    assert verdict(one, now) is thought
    assert end_it(one, now) == remedy


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (Target(), ""),
        (Target(cluster="fleet"), " --cluster fleet"),
        (Target(data="my data"), " --data 'my data'"),
        (Target(data="default", cluster="x"), " --data default"),
        (Target(bootstrap="h:1,h:2", data="d"), " --bootstrap h:1,h:2"),
    ],
)
def test_a_command_that_is_proposed_is_about_the_same_cluster(target: Target, words: str) -> None:
    end = end_it(opened(None), SOON, target.words)
    assert end == f"tidelog txn abort t:0 --start-offset 10{words}"


@pytest.mark.parametrize(
    ("state", "now", "said"),
    [
        (
            State.ONGOING,
            SOON,
            (
                "is open for 12.0 s: its producer may still end it, else it is aborted in 48.0 s "
                "(time-out 60 s)"
            ),
        ),
        (
            State.ONGOING,
            LATE,
            (
                "is open for 1.1 min: its producer may still end it, else it is aborted any moment "
                "(time-out 60 s)"
            ),
        ),
        (
            State.ONGOING,
            TOO_LATE,
            (
                "is open for 1.2 min: its coordinator, broker 2, should have aborted it "
                "(time-out 60 s)"
            ),
        ),
        (State.PREPARE_COMMIT, SOON, "is committed, and waits until t-0, t-1 heard of it"),
        (State.PREPARE_ABORT, SOON, "is aborted, and waits until t-0, t-1 heard of it"),
        (
            State.PREPARE_EPOCH_FENCE,
            SOON,
            "is about to be aborted: another producer took its id over",
        ),
        (State.COMPLETE_COMMIT, SOON, "is over: it was committed"),
        (State.COMPLETE_ABORT, SOON, "is over: it was aborted"),
        (State.DEAD, SOON, "is over, and about to be forgotten"),
        (State.EMPTY, SOON, "has not begun: nothing was written since its producer came"),
        ("Unheard", SOON, "is Unheard"),
    ],
)
def test_each_state_says_what_it_waits_for(state: str, now: int, said: str) -> None:
    assert waits_for(transaction(state), now, [ZERO, ONE]) == said


def test_many_partitions_are_not_all_named_and_none_is_all_of_them() -> None:
    known = transaction(State.PREPARE_COMMIT)
    many = [("t", Partition(number)) for number in range(7)]
    assert waits_for(known, SOON, many).endswith("t-0, t-1, t-2, t-3, t-4 and 2 more heard of it")
    assert waits_for(known, SOON).endswith("until all of its partitions heard of it")


# -- why a transaction ----------------------------------------------------------------------------


def told(seen: Seen, now: int = SOON) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(one.code, one.sentence, one.remedies) for one in of_transaction(seen, now)]


def test_one_that_is_over_has_no_reasons() -> None:
    assert told(Seen(transaction(State.COMPLETE_COMMIT))) == []


def test_an_open_one_is_told_with_what_it_holds_up() -> None:
    known = transaction(State.ONGOING, ZERO, ONE, OFFSETS)
    seen = Seen(
        known,
        [opened(known), opened(known, ONE, 20), opened(known, OFFSETS, 4)],
        ends={ZERO: Ends(10, 13), ONE: Ends(15, 40), OFFSETS: Ends(4, 5)},
    )
    (first, *rest) = told(seen)
    assert first[0] is Code.OPEN_TRANSACTION
    assert first[1].startswith('transaction "it\'s 1" (producer 7, epoch 3) is open for 12.0 s')
    assert first[2] == ()
    assert [one[:2] for one in rest] == [
        (
            Code.READERS_WAIT,
            (
                "readers of committed records wait for it in t-0 at offset 10, 3 offsets "
                "before the end"
            ),
        ),
        (
            Code.OFFSETS_PENDING,
            "offsets that it commits for groups are pending, in __consumer_offsets-3",
        ),
    ], "in t-1 another transaction is the first"


def test_one_that_is_over_its_time_is_to_be_aborted() -> None:
    ((code, _, remedies),) = told(Seen(transaction()), TOO_LATE)
    assert (code, remedies) == (
        Code.OVERDUE_TRANSACTION,
        ("tidelog txn abort 'it'\"'\"'s 1'",),
    )


def test_one_that_is_decided_waits_for_partitions_that_nobody_leads_or_that_are_open() -> None:
    known = transaction(State.PREPARE_COMMIT, ZERO, ONE)
    ((code, sentence, remedies),) = told(Seen(known, [opened(known)], unseen=[ONE]))
    assert code is Code.MARKER_MISSING
    assert sentence.endswith("is committed, and waits until t-0, t-1 heard of it")
    assert remedies == ("tidelog why partition t:1",)


def test_what_hangs_of_its_producer_comes_first() -> None:
    known = transaction(State.ONGOING, ZERO)
    late = opened(known, ONE, 5, stamp=None)
    ((code, sentence, remedies), (second, *_)) = told(Seen(known, [opened(known), late]))
    assert (code, second) == (Code.HANGING_TRANSACTION, Code.OPEN_TRANSACTION)
    assert sentence == (
        't-1 has records from offset 5 on of transaction "it\'s 1" (producer 7, epoch 3), whose '
        "coordinator does not count this partition in, so that nobody will end it"
    )
    assert remedies == ("tidelog txn abort t:1 --start-offset 5",)


# -- why readers wait -----------------------------------------------------------------------------


BEFORE_THE_END = Ends(10, 13)


def waiting(
    *open_here: OpenTransaction, ends: Ends = BEFORE_THE_END, now: int = SOON
) -> Sequence[Reason]:
    return of_readers(Readers(ZERO, ends, open_here), now, " --cluster x")


def test_readers_who_get_to_the_end_wait_for_nothing() -> None:
    assert waiting(ends=Ends(13, 13)) == []


def test_readers_wait_for_the_first_that_is_open() -> None:
    (reason,) = waiting(opened(transaction()), opened(None, start=11))
    assert reason.code is Code.OPEN_TRANSACTION
    assert reason.sentence == (
        "readers of committed records wait in t-0 at offset 10, 3 offsets before the end: for "
        'transaction "it\'s 1" (producer 7, epoch 3), which is open for 12.0 s: its producer may '
        "still end it, else it is aborted in 48.0 s (time-out 60 s); 1 other transaction open "
        "behind it"
    )
    assert reason.remedies == ("tidelog why txn 'it'\"'\"'s 1' --cluster x",)


@pytest.mark.parametrize(
    ("known", "now", "code", "says"),
    [
        (transaction(), TOO_LATE, Code.OVERDUE_TRANSACTION, "should have aborted it"),
        (
            transaction(State.PREPARE_ABORT),
            SOON,
            Code.MARKER_MISSING,
            "which is aborted, and waits until all of its partitions heard of it",
        ),
        (
            None,
            SOON,
            Code.HANGING_TRANSACTION,
            (
                "a transaction of producer 7, epoch 3, which no coordinator knows, so that nobody "
                "will end it; its last record is 12.0 s old"
            ),
        ),
        (
            transaction(State.EMPTY),
            SOON,
            Code.HANGING_TRANSACTION,
            "whose coordinator takes it for ended (Empty), so that nobody will end it",
        ),
    ],
)
def test_what_readers_wait_for_has_its_own_code(
    known: DescribedTransaction | None, now: int, code: Code, says: str
) -> None:
    (reason,) = waiting(opened(known), now=now)
    assert reason.code is code
    assert says in reason.sentence


def test_a_marker_that_is_not_replicated_yet_holds_readers_too() -> None:
    for behind in ((), (opened(transaction(), start=12),)):
        (reason,) = waiting(*behind)
        assert reason.code is Code.READERS_WAIT
        assert "the end of a transaction is not on all in-sync replicas yet" in reason.sentence


# -- what the protocol alone tells of a partition -------------------------------------------------


def seen_from_outside(
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2, 3),
    there: tuple[int, ...] = (1, 2, 3),
    least: int | None = 2,
) -> list[str]:
    view = PartitionView(BrokerId(leader), Epoch(0), (1, 2, 3), isr, ())
    return [f"{one.code}: {one.sentence}" for one in of_view("t-0", view, there, least)]


def test_a_partition_that_is_well_is_well_from_outside() -> None:
    assert seen_from_outside() == []
    assert seen_from_outside(least=None) == []


@pytest.mark.parametrize(
    ("there", "who"),
    [
        ((2, 4), "of the brokers that have it only 2 are listed"),
        ((4,), "none of the brokers that have it is listed"),
    ],
)
def test_a_partition_without_a_leader_says_who_is_left(there: tuple[int, ...], who: str) -> None:
    said = f"no-leader: t-0 has no leader: {who}"
    assert seen_from_outside(there=there, leader=-1)[0] == said


def test_what_is_missing_is_told_the_worst_first() -> None:
    assert seen_from_outside(isr=(2,), leader=2, there=(1, 2)) == [
        (
            "under-min-isr: t-0 refuses writes with acks=all: 1 replica in sync, "
            "min.insync.replicas asks for 2"
        ),
        "not-in-sync: t-0 lacks replica 1: broker 1 is listed, and catches up",
        "not-in-sync: t-0 lacks replica 3: broker 3 is not listed by the cluster",
        "not-preferred: t-0 is led by broker 2, not by the preferred 1",
    ]
