"""How transactions end under version 2: each end takes an epoch, and says what was asked before.

The tables are what Apache Kafka 4.3.1 answers (`tests/compat/transaction_talks_test.py` asks it),
but for what docs/transactions.md names.
"""

from itertools import product
from typing import Final

import pytest
from msgspec.structs import replace

from harness.machines.transaction_ids import (
    EPOCH,
    ID,
    NEXT_ID,
    OTHER,
    PLACE,
    PRODUCER,
    WALL_MS,
    Ids,
    standing,
)
from tidelog.coordinator.transactions.records import Transaction
from tidelog.coordinator.transactions.requests import (
    AddPartitions,
    Done,
    EndTxn,
    Identity,
    InitProducerId,
    MarkersWritten,
    Prepared,
    Reply,
)
from tidelog.coordinator.transactions.states import TxnState
from tidelog.coordinator.transactions.steps import EPOCH_LAST, EPOCH_MAX
from tidelog.kernel.ids import ProducerEpoch, ProducerId
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode

S, E = TxnState, ErrorCode
ABORTED, SAME, FENCED = S.PREPARE_ABORT, "the same answer", E.PRODUCER_FENCED
STATES: Final = tuple(state for state in S if state not in {S.DEAD, S.PREPARE_EPOCH_FENCE})


def epoch(number: int) -> ProducerEpoch:
    return ProducerEpoch(number)


def end(
    producer_epoch: int = EPOCH, *, committed: bool, producer_id: int = PRODUCER, version: int = 2
) -> EndTxn:
    return EndTxn(ID, ProducerId(producer_id), epoch(producer_epoch), committed, version)


def add(
    producer_epoch: int = EPOCH, producer_id: int = PRODUCER, version: int = 2
) -> AddPartitions:
    places = frozenset({PLACE})
    return AddPartitions(ID, ProducerId(producer_id), epoch(producer_epoch), places, version)


def init(producer_id: int = -1, producer_epoch: int = -1) -> InitProducerId:
    return InitProducerId(ID, 60_000, ProducerId(producer_id), epoch(producer_epoch))


def in_state(state: TxnState, producer_epoch: int = EPOCH) -> Ids:
    """As it comes to stand there under version 2: after an end, with the epoch that this took."""
    ids = Ids(version=2)
    known = standing(state, producer_epoch, client_version=2)
    if state.is_prepared or state.is_complete:
        known = replace(known, previous_producer_id=PRODUCER)
    ids.put(known)
    ids.log.clear()
    ids.wait(5)
    return ids


def complete(ids: Ids) -> Transaction:
    """Every marker is written."""
    prepared = ids.known()
    assert prepared is not None
    assert ids.ask(MarkersWritten(ID, prepared)) == Done()
    known = ids.known()
    assert known is not None
    return known


def finished(ids: Ids, asked: EndTxn) -> Identity:
    """What the producer is told once that is complete."""
    said = ids.ask(asked)
    assert isinstance(said, Prepared), said
    complete(ids)
    return Identity(*said.transaction.successor)


# -- which requests are taken

WAITS: Final = "nothing is written, and who asked waits for the end that is"
ENDED: dict[TxnState, dict[str, object]] = {
    # By the epoch that is asked with, that of the state or the one before; asked to commit or to
    # abort. A state is what is written.
    S.EMPTY: {"now commit": E.INVALID_TXN_STATE, "now abort": ABORTED},
    S.ONGOING: {"now commit": S.PREPARE_COMMIT, "now abort": ABORTED},
    S.PREPARE_COMMIT: {
        "before commit": WAITS,
        "before abort": E.INVALID_TXN_STATE,
        "now commit": E.CONCURRENT_TRANSACTIONS,
        "now abort": E.CONCURRENT_TRANSACTIONS,
    },
    S.PREPARE_ABORT: {
        "before commit": E.INVALID_TXN_STATE,
        "before abort": WAITS,
        "now commit": E.CONCURRENT_TRANSACTIONS,
        "now abort": E.CONCURRENT_TRANSACTIONS,
    },
    S.COMPLETE_COMMIT: {
        "before commit": SAME,
        "before abort": E.INVALID_TXN_STATE,
        "now commit": E.INVALID_TXN_STATE,
        "now abort": ABORTED,
    },
    S.COMPLETE_ABORT: {
        "before commit": E.INVALID_TXN_STATE,
        "before abort": SAME,
        "now commit": E.INVALID_TXN_STATE,
        "now abort": ABORTED,
    },
}
EPOCHS: Final = {"now": EPOCH, "before": EPOCH - 1, "later": EPOCH + 1, "long ago": EPOCH - 2}


@pytest.mark.parametrize(
    ("state", "when", "outcome"), list(product(STATES, EPOCHS, ("commit", "abort")))
)
def test_an_end_is_taken_once_under_the_epoch_that_counts(
    state: TxnState, when: str, outcome: str
) -> None:
    ids = in_state(state)
    expected = ENDED[state].get(f"{when} {outcome}", FENCED)
    said = ids.ask(end(EPOCHS[when], committed=outcome == "commit"))
    known = ids.known()
    assert known is not None
    if not isinstance(expected, TxnState):
        again = Prepared(known) if expected == WAITS else Identity(PRODUCER, epoch(EPOCH))
        assert said == (Refusal(expected) if isinstance(expected, ErrorCode) else again)
        assert not ids.log
        return
    assert said == Prepared(known)
    assert (known.state, known.producer_epoch) == (expected, EPOCH + 1)
    assert known.partitions == ({PLACE} if state is S.ONGOING else frozenset())
    assert (known.previous_producer_id, known.next_producer_id) == (PRODUCER, -1)
    assert (known.client_version, known.updated_ms) == (2, WALL_MS + 5)
    assert known.started_ms == (WALL_MS if state is S.ONGOING else WALL_MS + 5)


@pytest.mark.parametrize(("state", "committed"), list(product(STATES, (True, False))))
def test_nobody_ends_what_another_producer_began(state: TxnState, committed: bool) -> None:  # noqa: FBT001 -- a row
    ids = in_state(state)
    said = ids.ask(end(EPOCH, committed=committed, producer_id=8))
    assert said == Refusal(E.INVALID_PRODUCER_ID_MAPPING)
    assert Ids(version=2).ask(end(committed=committed)) == said
    assert not ids.log


@pytest.mark.parametrize("committed", [True, False])
def test_the_epoch_of_the_end_is_that_of_the_next_transaction(*, committed: bool) -> None:
    ids = in_state(S.ONGOING)
    assert finished(ids, end(committed=committed)) == Identity(PRODUCER, epoch(EPOCH + 1))
    assert ids.ask(add(EPOCH)) == Refusal(FENCED), "late"
    assert ids.ask(add(EPOCH + 1)) == Done()
    assert ids.ask(end(EPOCH, committed=committed)) == Refusal(FENCED), "late"
    assert finished(ids, end(EPOCH + 1, committed=True)).producer_epoch == EPOCH + 2


def test_an_answer_that_was_missed_is_given_again_also_after_a_crash() -> None:
    ids = in_state(S.ONGOING)
    told = finished(ids, end(committed=True))
    ids.load()
    assert ids.ask(end(committed=True)) == told
    assert ids.ask(end(committed=False)) == Refusal(E.INVALID_TXN_STATE)
    assert ids.ask(init(PRODUCER, EPOCH)) == told, "the end gave it this epoch, as it had said who"


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_whoever_was_told_its_next_epoch_waits_for_the_markers(state: TxnState) -> None:
    ids = in_state(state)
    assert ids.ask(add(EPOCH)) == Refusal(E.CONCURRENT_TRANSACTIONS)
    assert ids.ask(add(EPOCH - 1)) == Refusal(FENCED)
    complete(ids)
    assert ids.ask(add(EPOCH)) == Done()


# -- both versions, one after the other


def test_a_producer_of_version_1_keeps_its_epoch_and_one_of_version_2_does_not() -> None:
    ids = Ids(version=2)
    ids.put(standing(S.EMPTY))
    ids.ask(add(version=0))
    old = ids.ask(end(committed=True, version=0))
    assert isinstance(old, Prepared)
    assert (old.transaction.producer_epoch, old.transaction.client_version) == (EPOCH, 0)
    complete(ids)
    ids.ask(add())
    assert finished(ids, end(committed=True)) == Identity(PRODUCER, epoch(EPOCH + 1))
    ids.ask(add(EPOCH + 1, version=0))
    assert ids.ask(end(committed=True, version=0)) == Refusal(FENCED)
    assert isinstance(ids.ask(end(EPOCH + 1, committed=False, version=0)), Prepared)


@pytest.mark.parametrize(("first", "second"), [(0, 2), (2, 0)])
def test_a_transaction_ends_as_its_last_request_says(first: int, second: int) -> None:
    """A client may learn of the other version while its transaction is open."""
    ids = Ids(version=2)
    ids.put(standing(S.EMPTY))
    ids.ask(add(version=first))
    said = finished(ids, end(committed=True, version=second))
    assert said == Identity(PRODUCER, epoch(EPOCH + (second == 2)))


@pytest.mark.parametrize("committed", [True, False])
def test_who_was_locked_out_is_told_of_no_end_that_another_one_made(*, committed: bool) -> None:
    """The other one speaks version 1: its end did not take the epoch, its beginning did."""
    ids = in_state(S.COMPLETE_COMMIT)
    assert ids.ask(init()) == Identity(PRODUCER, epoch(EPOCH + 1))
    ids.ask(add(EPOCH + 1, version=0))
    ids.ask(end(EPOCH + 1, committed=committed, version=0))
    complete(ids)
    assert ids.ask(end(EPOCH, committed=committed)) == Refusal(FENCED)


def test_an_end_of_the_other_version_is_no_repetition() -> None:
    ids = in_state(S.COMPLETE_COMMIT)
    assert ids.ask(end(EPOCH, committed=False, version=0)) == Refusal(E.INVALID_TXN_STATE)
    assert ids.ask(end(EPOCH, committed=True, version=0)) == Done()
    assert ids.ask(end(EPOCH - 1, committed=True, version=0)) == Refusal(FENCED)
    old = Ids(version=2)
    old.put(standing(S.COMPLETE_COMMIT))
    assert old.ask(end(EPOCH - 1, committed=True)) == Refusal(FENCED)
    old.put(standing(S.PREPARE_COMMIT))
    assert old.ask(end(EPOCH, committed=False)) == Refusal(E.CONCURRENT_TRANSACTIONS)


# -- who is locked out


def locked_out(how: str, ids: Ids) -> Reply | None:
    """By another producer, or as its time is up."""
    if how == "by another":
        return ids.ask(init())
    ids.wait(60_001)
    ids.expire()
    return None


@pytest.mark.parametrize("how", ["by another", "by time"])
def test_what_is_aborted_by_another_hand_takes_one_epoch_too(how: str) -> None:
    ids = Ids(version=2)
    ids.put(standing(S.EMPTY))
    ids.ask(add(version=0))
    locked_out(how, ids)
    known = ids.known()
    assert known is not None
    assert (known.state, known.producer_epoch, known.client_version) == (ABORTED, EPOCH + 1, 2)
    assert known.partitions == {PLACE}
    complete(ids)
    assert ids.ask(add(EPOCH)) == Refusal(FENCED)
    assert ids.ask(end(committed=True)) == Refusal(E.INVALID_TXN_STATE), "it was not"
    assert ids.ask(end(committed=False)) == Identity(PRODUCER, epoch(EPOCH + 1)), "it was"


@pytest.mark.parametrize("how", ["by another", "by time"])
def test_under_the_lower_version_of_the_cluster_it_is_as_before(how: str) -> None:
    ids = Ids(version=1)
    ids.put(standing(S.EMPTY))
    ids.ask(add())
    locked_out(how, ids)
    known = complete(ids)
    assert (known.producer_epoch, known.client_version) == (EPOCH + 1, 0)
    assert ids.ask(end(committed=False)) == Refusal(FENCED)
    assert ids.ask(init(PRODUCER, EPOCH)) == Refusal(FENCED)


def test_the_version_of_the_cluster_may_change_while_a_transaction_runs() -> None:
    ids = in_state(S.ONGOING)
    ids.version = 1
    assert finished(ids, end(committed=True)) == Identity(PRODUCER, epoch(EPOCH + 1))
    assert ids.ask(end(committed=True)) == Identity(PRODUCER, epoch(EPOCH + 1))
    ids.ask(add(EPOCH + 1, version=0))
    ids.version = 2
    assert isinstance(ids.ask(end(EPOCH + 1, committed=True, version=0)), Prepared)


# -- the last epoch


@pytest.mark.parametrize("committed", [True, False])
def test_after_the_last_epoch_the_producer_gets_another_id(*, committed: bool) -> None:
    ids = in_state(S.ONGOING, EPOCH_LAST)
    said = ids.ask(end(EPOCH_LAST, committed=committed))
    assert isinstance(said, Prepared)
    prepared = said.transaction
    assert (prepared.producer_id, prepared.producer_epoch) == (PRODUCER, EPOCH_MAX), "of markers"
    assert (prepared.next_producer_id, prepared.next_producer_epoch) == (NEXT_ID, -1)
    told = Identity(*prepared.successor)
    assert told == Identity(NEXT_ID, epoch(0))
    again = end(EPOCH_LAST, committed=committed)
    assert ids.ask(again) == Refusal(E.CONCURRENT_TRANSACTIONS)
    assert ids.ask(add(0, NEXT_ID)) == Refusal(E.CONCURRENT_TRANSACTIONS)
    assert ids.ask(init(NEXT_ID, 0)) == Refusal(E.CONCURRENT_TRANSACTIONS)
    known = complete(ids)
    assert (known.producer_id, known.producer_epoch) == (NEXT_ID, 0)
    assert (known.previous_producer_id, known.next_producer_id) == (PRODUCER, -1)
    ids.load()
    assert ids.ask(again) == told
    assert ids.ask(end(EPOCH_LAST, committed=not committed)) == Refusal(E.INVALID_TXN_STATE)
    assert ids.ask(end(EPOCH_LAST - 1, committed=committed)) == Refusal(
        E.INVALID_PRODUCER_ID_MAPPING
    )
    assert ids.ask(init(PRODUCER, EPOCH_LAST)) == told
    assert ids.ask(add(0, NEXT_ID)) == Done()


def test_where_no_producer_id_is_in_stock_the_last_epoch_ends_later() -> None:
    ids = Ids(stock=0, version=2)
    ids.put(standing(S.ONGOING, EPOCH_LAST, client_version=2))
    asked = end(EPOCH_LAST, committed=True)
    assert ids.ask(asked) == Refusal(E.COORDINATOR_LOAD_IN_PROGRESS)
    ids.give(5)
    assert finished(ids, asked) == Identity(NEXT_ID, epoch(0))


@pytest.mark.parametrize("stock", [0, 5])
def test_whoever_is_locked_out_at_the_last_epoch_goes_on_as_another(stock: int) -> None:
    """Also where the time was up while no producer id was in stock."""
    ids = Ids(stock=stock, version=2)
    ids.put(standing(S.EMPTY, EPOCH_LAST))
    ids.ask(add(EPOCH_LAST))
    locked_out("by time", ids)
    known = complete(ids)
    assert known.producer_epoch == (0 if stock else EPOCH_MAX)
    ids.give(5)
    asked = end(EPOCH_LAST, committed=False)
    if stock:
        assert ids.ask(asked) == Identity(NEXT_ID, epoch(0))
    else:
        assert finished(ids, asked) == Identity(NEXT_ID, epoch(0))
    assert ids.ask(asked) == Identity(NEXT_ID, epoch(0))


def test_a_producer_that_says_who_it_was_gets_no_epoch_that_nobody_may_have() -> None:
    ids = Ids(stock=0, version=2)
    ids.put(standing(S.EMPTY, EPOCH_LAST))
    ids.ask(add(EPOCH_LAST))
    locked_out("by time", ids)
    complete(ids)
    ids.give(5)
    told = ids.ask(init(PRODUCER, EPOCH_LAST))
    assert told == Identity(NEXT_ID, epoch(0)) == ids.ask(init(PRODUCER, EPOCH_LAST))


def test_partitions_join_whatever_the_version() -> None:
    ids = in_state(S.ONGOING)
    more = AddPartitions(ID, PRODUCER, epoch(EPOCH), frozenset({PLACE, OTHER}), 2)
    assert ids.ask(more) == Done()
    known = ids.known()
    assert known is not None
    assert known.partitions == {PLACE, OTHER}
    assert known.client_version == 2
