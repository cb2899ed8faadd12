"""What becomes of a transactional id, as a table: each request in each state, and its code."""

from collections.abc import Callable
from itertools import product
from typing import Final

import pytest

from harness.machines.transaction_ids import (
    EPOCH,
    ID,
    NEXT_ID,
    OTHER,
    PLACE,
    PRODUCER,
    TIMEOUT_MS,
    WALL_MS,
    Ids,
    standing,
)
from tidelog.coordinator.transactions.records import Transaction
from tidelog.coordinator.transactions.requests import (
    AddPartitions,
    Describe,
    Described,
    Done,
    EndTxn,
    Identity,
    InitProducerId,
    MarkersWritten,
    Prepared,
    Request,
    Verified,
    VerifyPartitions,
)
from tidelog.coordinator.transactions.shard import TransactionSettings
from tidelog.coordinator.transactions.states import TxnState
from tidelog.coordinator.transactions.steps import EPOCH_LAST
from tidelog.kernel.ids import Partition, ProducerEpoch, ProducerId, TopicPartition
from tidelog.kernel.limits import TRANSACTION_PARTITIONS_MAX
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode

S, E = TxnState, ErrorCode
STATES: Final = (
    None,
    S.EMPTY,
    S.ONGOING,
    S.PREPARE_COMMIT,
    S.PREPARE_ABORT,
    S.COMPLETE_COMMIT,
    S.COMPLETE_ABORT,
)
"""None: nobody has the id."""


def epoch(number: int) -> ProducerEpoch:
    return ProducerEpoch(number)


def in_state(state: TxnState | None) -> Ids:
    ids = Ids()
    if state is not None:
        ids.put(standing(state))
    ids.log.clear()
    ids.wait(5)
    return ids


def init(producer_id: int = -1, producer_epoch: int = -1, timeout_ms: int = 1_000) -> Request:
    return InitProducerId(ID, timeout_ms, ProducerId(producer_id), epoch(producer_epoch))


def add(
    *places: TopicPartition, producer_id: int = PRODUCER, producer_epoch: int = EPOCH
) -> AddPartitions:
    return AddPartitions(ID, ProducerId(producer_id), epoch(producer_epoch), frozenset(places))


def end(*, committed: bool, producer_id: int = PRODUCER, producer_epoch: int = EPOCH) -> EndTxn:
    return EndTxn(ID, ProducerId(producer_id), epoch(producer_epoch), committed)


def verify(
    *places: TopicPartition, producer_id: int = PRODUCER, producer_epoch: int = EPOCH
) -> VerifyPartitions:
    return VerifyPartitions(ID, ProducerId(producer_id), epoch(producer_epoch), frozenset(places))


OF_THE_PRODUCER: Final[dict[str, Callable[..., Request]]] = {
    "AddPartitions": add,
    "VerifyPartitions": verify,
    "EndTxn commit": lambda **who: end(committed=True, **who),
    "EndTxn abort": lambda **who: end(committed=False, **who),
}


@pytest.mark.parametrize(("state", "asked"), list(product(STATES, OF_THE_PRODUCER)))
def test_nobody_speaks_for_another_producer(state: TxnState | None, asked: str) -> None:
    ids = in_state(state)
    make = OF_THE_PRODUCER[asked]
    assert ids.ask(make(producer_id=8)) == Refusal(E.INVALID_PRODUCER_ID_MAPPING)
    if state is not None:
        for other in (EPOCH - 1, EPOCH + 1):
            assert ids.ask(make(producer_epoch=other)) == Refusal(E.PRODUCER_FENCED)
    assert not ids.log


# What is said, and the state that is written; None where nothing is.
ADDED: dict[TxnState | None, tuple[ErrorCode, TxnState | None]] = {
    None: (E.INVALID_PRODUCER_ID_MAPPING, None),
    S.EMPTY: (E.NONE, S.ONGOING),
    S.ONGOING: (E.NONE, S.ONGOING),
    S.PREPARE_COMMIT: (E.CONCURRENT_TRANSACTIONS, None),
    S.PREPARE_ABORT: (E.CONCURRENT_TRANSACTIONS, None),
    S.COMPLETE_COMMIT: (E.NONE, S.ONGOING),
    S.COMPLETE_ABORT: (E.NONE, S.ONGOING),
}


@pytest.mark.parametrize("state", STATES)
def test_partitions_are_added_where_no_end_is_under_way(state: TxnState | None) -> None:
    ids = in_state(state)
    code, written = ADDED[state]
    said = ids.ask(add(OTHER))
    assert said == (Done() if code is E.NONE else Refusal(code))
    assert [record.value and record.value.state for record in ids.log] == (
        [] if written is None else [written]
    )
    if written is not None:
        known = ids.known()
        assert known is not None
        begun = state is not S.ONGOING
        assert known.partitions == ({OTHER} if begun else {PLACE, OTHER})
        assert known.started_ms == WALL_MS + 5 * begun
        assert (known.updated_ms, known.timeout_ms) == (WALL_MS + 5, TIMEOUT_MS)
        assert (known.producer_id, known.producer_epoch) == (PRODUCER, EPOCH)


def test_partitions_that_take_part_already_are_not_written_again() -> None:
    ids = in_state(S.ONGOING)
    assert ids.ask(add(PLACE)) == Done()
    assert ids.ask(add()) == Done()
    assert not ids.log


@pytest.mark.parametrize("state", [one for one in STATES if one is not None])
def test_no_partition_at_all_begins_no_transaction(state: TxnState) -> None:
    ids = in_state(state)
    refused = state in {S.PREPARE_COMMIT, S.PREPARE_ABORT}
    said = ids.ask(add())
    assert said == (Refusal(E.CONCURRENT_TRANSACTIONS) if refused else Done())
    assert not ids.log


WAITS: Final = "nothing is written, and who asked waits for the end that is"
ENDED: dict[TxnState | None, tuple[object, object]] = {
    # asked to commit, asked to abort: a state is what is written.
    None: (E.INVALID_PRODUCER_ID_MAPPING, E.INVALID_PRODUCER_ID_MAPPING),
    S.EMPTY: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    S.ONGOING: (S.PREPARE_COMMIT, S.PREPARE_ABORT),
    S.PREPARE_COMMIT: (WAITS, E.INVALID_TXN_STATE),
    S.PREPARE_ABORT: (E.INVALID_TXN_STATE, WAITS),
    S.COMPLETE_COMMIT: (E.NONE, E.INVALID_TXN_STATE),
    S.COMPLETE_ABORT: (E.INVALID_TXN_STATE, E.NONE),
}


@pytest.mark.parametrize(("state", "committed"), list(product(STATES, (True, False))))
def test_a_transaction_ends_once(state: TxnState | None, committed: bool) -> None:  # noqa: FBT001 -- a row
    ids = in_state(state)
    outcome = ENDED[state][0 if committed else 1]
    said = ids.ask(end(committed=committed))
    if isinstance(outcome, TxnState):
        known = ids.known()
        assert known is not None
        assert said == Prepared(known)
        assert (known.state, set(known.partitions)) == (outcome, {PLACE})
        assert (known.started_ms, known.updated_ms) == (WALL_MS, WALL_MS + 5)
        return
    assert not ids.log
    if outcome == WAITS:
        known = ids.known()
        assert known is not None
        assert said == Prepared(known)
    else:
        assert isinstance(outcome, ErrorCode)
        assert said == (Refusal(outcome) if outcome else Done())


VERIFIED: dict[TxnState | None, ErrorCode] = {
    None: E.INVALID_PRODUCER_ID_MAPPING,
    S.PREPARE_COMMIT: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_ABORT: E.CONCURRENT_TRANSACTIONS,
}


@pytest.mark.parametrize("state", STATES)
def test_who_may_append_is_told_for_each_partition(state: TxnState | None) -> None:
    ids = in_state(state)
    said = ids.ask(verify(OTHER, PLACE))
    if state in VERIFIED:
        assert said == Refusal(VERIFIED[state])
    else:
        takes_part = E.NONE if state is S.ONGOING else E.TRANSACTION_ABORTABLE
        assert said == Verified(((PLACE, takes_part), (OTHER, E.TRANSACTION_ABORTABLE)))
    assert not ids.log


# -- InitProducerId

INITIALIZED: dict[TxnState | None, Identity | ErrorCode] = {
    None: Identity(NEXT_ID, epoch(0)),
    S.EMPTY: Identity(PRODUCER, epoch(EPOCH + 1)),
    S.ONGOING: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_COMMIT: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_ABORT: E.CONCURRENT_TRANSACTIONS,
    S.COMPLETE_COMMIT: Identity(PRODUCER, epoch(EPOCH + 1)),
    S.COMPLETE_ABORT: Identity(PRODUCER, epoch(EPOCH + 1)),
}


@pytest.mark.parametrize(("state", "is_known"), list(product(STATES, (False, True))))
def test_a_producer_begins_under_the_next_epoch(state: TxnState | None, is_known: bool) -> None:  # noqa: FBT001 -- a row
    ids = in_state(state)
    expected = INITIALIZED[state]
    said = ids.ask(init(PRODUCER, EPOCH) if is_known else init())
    if isinstance(expected, ErrorCode):
        assert said == Refusal(expected)
        return
    known = ids.known()
    assert known is not None
    assert said == expected
    assert (known.state, known.timeout_ms, known.started_ms) == (S.EMPTY, 1_000, -1)
    assert known.previous_producer_id == (PRODUCER if is_known and state is not None else -1)


@pytest.mark.parametrize("is_known", [False, True])
def test_what_another_producer_left_open_is_aborted_under_an_epoch_that_nobody_has(
    *, is_known: bool
) -> None:
    ids = in_state(S.ONGOING)
    asked = init(PRODUCER, EPOCH) if is_known else init()
    assert ids.ask(asked) == Refusal(E.CONCURRENT_TRANSACTIONS)
    fenced = ids.known()
    assert fenced is not None
    assert (fenced.state, fenced.producer_epoch) == (S.PREPARE_ABORT, EPOCH + 1)
    assert fenced.partitions == {PLACE}
    ids.ask(MarkersWritten(ID, fenced))
    assert ids.ask(add(PLACE)) == Refusal(E.PRODUCER_FENCED)
    assert ids.ask(init()) == Identity(PRODUCER, epoch(EPOCH + 2))


@pytest.mark.parametrize("state", STATES[1:])
@pytest.mark.parametrize("who", [(8, EPOCH), (PRODUCER, EPOCH - 1), (PRODUCER, EPOCH + 1)])
def test_a_producer_of_the_past_gets_no_epoch(state: TxnState, who: tuple[int, int]) -> None:
    """Also while a transaction is open: it does not lock out who has the id."""
    ids = in_state(state)
    concurrent = state.is_prepared and who[0] == PRODUCER  # the epoch is looked at later
    code = E.CONCURRENT_TRANSACTIONS if concurrent else E.PRODUCER_FENCED
    assert ids.ask(init(*who)) == Refusal(code)
    assert not ids.log


def test_a_producer_that_nobody_remembers_begins_as_a_new_one() -> None:
    ids = in_state(None)
    assert ids.ask(init(PRODUCER, EPOCH)) == Identity(NEXT_ID, epoch(0))


@pytest.mark.parametrize("loads", [False, True])
def test_a_producer_that_missed_its_answer_gets_it_again(*, loads: bool) -> None:
    """Also of a coordinator that has nothing but the log."""
    ids = in_state(S.COMPLETE_ABORT)
    told = ids.ask(init(PRODUCER, EPOCH))
    if loads:
        ids.load()
    assert ids.ask(init(PRODUCER, EPOCH)) == told == Identity(PRODUCER, epoch(EPOCH + 1))
    assert ids.ask(init(PRODUCER, EPOCH - 1)) == Refusal(E.PRODUCER_FENCED)
    assert ids.ask(init(PRODUCER, EPOCH + 1)) == Identity(PRODUCER, epoch(EPOCH + 2))


def test_an_answer_is_given_again_only_to_who_had_the_epoch_before() -> None:
    ids = in_state(S.EMPTY)
    ids.ask(init())  # another instance, which does not say who it was
    assert ids.ask(init(PRODUCER, EPOCH)) == Refusal(E.PRODUCER_FENCED)


def test_an_answer_is_given_again_after_the_next_transaction_too() -> None:
    ids = in_state(S.EMPTY)
    ids.ask(init(PRODUCER, EPOCH))
    ids.ask(add(PLACE, producer_epoch=EPOCH + 1))
    assert ids.ask(init(PRODUCER, EPOCH)) == Refusal(E.PRODUCER_FENCED)  # it is open
    prepared = ids.ask(end(committed=True, producer_epoch=EPOCH + 1))
    assert isinstance(prepared, Prepared)
    ids.ask(MarkersWritten(ID, prepared.transaction))
    assert ids.ask(init(PRODUCER, EPOCH)) == Identity(PRODUCER, epoch(EPOCH + 1))


@pytest.mark.parametrize("is_known", [False, True])
def test_a_producer_whose_epochs_are_used_up_gets_a_new_id(*, is_known: bool) -> None:
    ids = Ids()
    ids.put(standing(S.COMPLETE_COMMIT, EPOCH_LAST))
    asked = init(PRODUCER, EPOCH_LAST) if is_known else init()
    assert ids.ask(asked) == Identity(NEXT_ID, epoch(0))
    assert ids.ask(add(PLACE, producer_epoch=EPOCH_LAST)) == Refusal(E.INVALID_PRODUCER_ID_MAPPING)


def test_the_last_epoch_is_one_below_what_is_left_to_lock_out() -> None:
    ids = Ids()
    ids.put(standing(S.EMPTY, EPOCH_LAST - 1))
    assert ids.ask(init()) == Identity(PRODUCER, EPOCH_LAST)
    ids.ask(add(PLACE, producer_epoch=EPOCH_LAST))
    ids.ask(init())
    fenced = ids.known()
    assert fenced is not None
    assert fenced.producer_epoch == EPOCH_LAST + 1 == (1 << 15) - 1
    ids.ask(MarkersWritten(ID, fenced))
    assert ids.ask(init(PRODUCER, EPOCH_LAST)) == Refusal(E.PRODUCER_FENCED)
    assert ids.ask(init()) == Identity(NEXT_ID, epoch(0))


def test_the_answer_with_a_new_id_is_given_again() -> None:
    ids = Ids()
    ids.put(standing(S.EMPTY, EPOCH_LAST))
    told = ids.ask(init(PRODUCER, EPOCH_LAST))
    ids.load()
    assert ids.ask(init(PRODUCER, EPOCH_LAST)) == told == Identity(NEXT_ID, epoch(0))
    assert ids.ask(init(NEXT_ID, EPOCH_LAST)) == Refusal(E.PRODUCER_FENCED)
    assert ids.ask(init(PRODUCER, EPOCH_LAST - 1)) == Refusal(E.PRODUCER_FENCED)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_that_is_not_allowed_is_refused(timeout_ms: int) -> None:
    ids = in_state(S.EMPTY)
    assert ids.ask(init(timeout_ms=timeout_ms)) == Refusal(E.INVALID_TRANSACTION_TIMEOUT)
    assert Ids(TransactionSettings(timeout_ms_max=900_001)).ask(init(timeout_ms=900_001)) == (
        Identity(NEXT_ID, epoch(0))
    )


def test_where_no_producer_id_is_in_stock_the_producer_comes_again() -> None:
    ids = Ids(stock=0)
    assert ids.ask(init()) == Refusal(E.COORDINATOR_LOAD_IN_PROGRESS)
    ids.put(standing(S.EMPTY))
    assert ids.ask(init()) == Identity(PRODUCER, epoch(EPOCH + 1))


# -- markers, and what is shown


@pytest.mark.parametrize(
    ("prepared", "complete"),
    [(S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)],
)
def test_a_prepared_transaction_is_complete_once_its_markers_are(
    prepared: TxnState, complete: TxnState
) -> None:
    ids = in_state(prepared)
    assert ids.ask(MarkersWritten(ID, standing(prepared))) == Done()
    known = ids.known()
    assert known is not None
    assert (known.state, known.partitions) == (complete, frozenset())
    assert (known.started_ms, known.updated_ms) == (WALL_MS, WALL_MS + 5)


@pytest.mark.parametrize("state", STATES)
def test_markers_of_another_transaction_change_nothing(state: TxnState | None) -> None:
    ids = in_state(state)
    earlier = standing(S.PREPARE_COMMIT, started_ms=WALL_MS - 1)
    assert ids.ask(MarkersWritten(ID, earlier)) == Done()
    assert not ids.log


@pytest.mark.parametrize("state", STATES)
def test_an_id_is_described_as_it_stands(state: TxnState | None) -> None:
    said = in_state(state).ask(Describe(ID))
    if state is None:
        assert said == Refusal(E.TRANSACTIONAL_ID_NOT_FOUND)
    else:
        assert said == Described(standing(state))


def test_a_transaction_too_large_for_a_record_is_refused() -> None:
    ids = in_state(S.EMPTY)
    many = [("t" * 249, Partition(index)) for index in range(9_000)]
    assert ids.ask(add(*many)) == Done()
    topics = [(f"{index:0249}", Partition(0)) for index in range(2_500)]
    assert ids.ask(add(*topics)) == Refusal(E.UNKNOWN_SERVER_ERROR)
    known: Transaction | None = ids.known()
    assert known is not None
    assert known.partitions == set(many)


def test_a_transaction_has_no_more_partitions_than_its_coordinator_can_end_in_one_step() -> None:
    ids = in_state(S.ONGOING)
    before = ids.known()
    assert before is not None
    many = [("wide", Partition(at)) for at in range(TRANSACTION_PARTITIONS_MAX)]
    too_many = AddPartitions(ID, PRODUCER, epoch(EPOCH), frozenset(many))
    assert ids.ask(too_many) == Refusal(E.POLICY_VIOLATION)
    assert ids.known() == before
    left = frozenset(many[: TRANSACTION_PARTITIONS_MAX - len(before.partitions)])
    assert ids.ask(AddPartitions(ID, PRODUCER, epoch(EPOCH), left)) == Done()
