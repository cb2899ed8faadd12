"""Time-outs of transactions, ids that nobody uses, and lists of them."""

import pytest

from harness.machines.transaction_ids import (
    EPOCH,
    ID,
    PLACE,
    PRODUCER,
    START,
    TIMEOUT_MS,
    WALL_MS,
    Ids,
    standing,
)
from tidelog.coordinator.transactions.events import TransactionTimedOut
from tidelog.coordinator.transactions.records import TxnRecord
from tidelog.coordinator.transactions.requests import (
    AddPartitions,
    EndTxn,
    InitProducerId,
    ListAll,
    Listed,
    MarkersWritten,
    Prepared,
)
from tidelog.coordinator.transactions.shard import TransactionSettings
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import ProducerId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import TRANSACTIONS_EXPIRED_PER_DECISION_MAX

HOUR_MS = 3_600_000
WEEK_MS = 7 * 24 * HOUR_MS
ADD = AddPartitions(ID, PRODUCER, EPOCH, frozenset({PLACE}))


def begun() -> Ids:
    ids = Ids()
    ids.put(standing(TxnState.EMPTY))
    ids.ask(ADD)
    return ids


def test_a_transaction_is_aborted_when_its_time_is_up_and_its_producer_is_locked_out() -> None:
    ids = begun()
    assert ids.shard.deadline() == START + ms(TIMEOUT_MS)
    ids.wait(TIMEOUT_MS - 1)
    assert ids.expire() == ()
    ids.wait(1)
    (record,) = ids.expire()
    assert record.value is not None
    assert record.value.state is TxnState.PREPARE_ABORT
    assert record.value.producer_epoch == EPOCH + 1
    assert record.value.partitions == {PLACE}
    assert ids.timed_out == [TransactionTimedOut(ID, PRODUCER, TIMEOUT_MS)]
    assert ids.expire() == ()


def test_partitions_that_are_added_later_give_no_more_time() -> None:
    ids = begun()
    ids.wait(TIMEOUT_MS / 2)
    ids.ask(AddPartitions(ID, PRODUCER, EPOCH, frozenset({("u", PLACE[1])})))
    ids.wait(TIMEOUT_MS / 2)
    assert len(ids.expire()) == 1


def test_a_transaction_that_has_ended_is_not_aborted_and_the_next_has_its_own_time() -> None:
    ids = begun()
    prepared = ids.ask(EndTxn(ID, PRODUCER, EPOCH, committed=True))
    assert isinstance(prepared, Prepared)
    ids.ask(MarkersWritten(ID, prepared.transaction))
    assert ids.shard.deadline() == START + ms(HOUR_MS)
    ids.wait(TIMEOUT_MS - 10)
    ids.ask(ADD)
    ids.wait(20)
    assert ids.expire() == ()
    assert ids.shard.deadline() == ids.now + ms(TIMEOUT_MS - 20)


def test_a_producer_may_ask_for_another_time_out() -> None:
    ids = Ids()
    ids.put(standing(TxnState.EMPTY))
    ids.ask(InitProducerId(ID, 100, PRODUCER, EPOCH))
    ids.ask(AddPartitions(ID, PRODUCER, EPOCH + 1, frozenset({PLACE})))  # type: ignore[arg-type]  # an epoch
    assert ids.shard.deadline() == START + ms(100)


@pytest.mark.parametrize(
    ("away_ms", "left_ms"), [(0, TIMEOUT_MS), (TIMEOUT_MS / 4, TIMEOUT_MS * 3 / 4), (HOUR_MS, 0)]
)
def test_a_coordinator_that_takes_over_gives_what_is_left(away_ms: float, left_ms: float) -> None:
    ids = begun()
    ids.wait(away_ms)
    ids.load()
    assert ids.shard.deadline() == ids.now + ms(left_ms)
    ids.wait(left_ms)
    assert len(ids.expire()) == 1


def test_a_clock_that_was_set_back_gives_nobody_more_than_a_whole_time_out() -> None:
    ids = Ids()
    ids.put(standing(TxnState.ONGOING, started_ms=WALL_MS + 10 * HOUR_MS))
    ids.load()
    assert ids.shard.deadline() == START + ms(TIMEOUT_MS)


def test_limits_of_transactions_that_have_ended_do_not_pile_up() -> None:
    ids = begun()
    for _ in range(3_000):
        prepared = ids.ask(EndTxn(ID, PRODUCER, EPOCH, committed=True))
        assert isinstance(prepared, Prepared)
        ids.ask(MarkersWritten(ID, prepared.transaction))
        ids.wait(1)
        ids.ask(ADD)
    assert len(ids.shard._due) < 2_000
    assert ids.shard.deadline() == ids.now + ms(TIMEOUT_MS)


# -- ids that nobody uses


@pytest.mark.parametrize("state", [one for one in TxnState if one.is_idle])
def test_an_id_that_nobody_used_for_long_is_taken_back(state: TxnState) -> None:
    ids = Ids()
    ids.put(standing(state))
    ids.wait(WEEK_MS - 1)
    ids.expire()
    assert ids.known() is not None
    ids.wait(HOUR_MS)
    assert ids.expire() == (TxnRecord(ID, None),)
    assert ids.known() is None
    assert len(ids.shard) == 0


@pytest.mark.parametrize("state", [one for one in TxnState if one.is_prepared])
def test_an_id_that_owes_markers_is_kept(state: TxnState) -> None:
    ids = Ids()
    ids.put(standing(state))
    ids.wait(2 * WEEK_MS)
    assert ids.expire() == ()


def test_ids_are_looked_at_as_often_as_the_setting_says() -> None:
    ids = Ids(TransactionSettings(id_expiration_ms=10, cleanup_interval_ms=100))
    ids.put(standing(TxnState.EMPTY))
    assert ids.shard.deadline() == START + ms(100)
    ids.wait(99)
    assert ids.expire() == ()
    ids.wait(1)
    assert len(ids.expire()) == 1
    assert ids.shard.deadline() == START + ms(200)


def test_ids_are_taken_back_some_at_a_time() -> None:
    ids = Ids()
    count = TRANSACTIONS_EXPIRED_PER_DECISION_MAX + 10
    for number in range(count):
        ids.put(standing(TxnState.EMPTY), f"id {number}")
    ids.wait(WEEK_MS)
    assert len(ids.expire()) == TRANSACTIONS_EXPIRED_PER_DECISION_MAX
    due = ids.shard.deadline()
    assert due is not None
    assert due <= ids.now
    assert len(ids.expire()) == 10
    assert ids.expire() == ()


def test_many_and_large_transactions_time_out_some_at_a_time() -> None:
    ids = Ids()
    places = frozenset((f"{index:0249}", PLACE[1]) for index in range(1_000))
    for number in range(5):
        ids.put(standing(TxnState.ONGOING, partitions=places), f"id {number}")
    ids.load()
    ids.wait(TIMEOUT_MS)
    assert [len(ids.expire()) for _ in range(3)] == [3, 2, 0]


def test_an_id_that_is_used_again_stays() -> None:
    ids = Ids()
    ids.put(standing(TxnState.EMPTY))
    ids.put(standing(TxnState.EMPTY), "other")
    ids.wait(WEEK_MS - 10)
    ids.ask(InitProducerId(ID, 1_000))
    ids.wait(10)
    assert ids.expire() == (TxnRecord("other", None),)


# -- lists


def listed(ids: Ids, request: ListAll) -> set[str]:
    said = ids.ask(request)
    assert isinstance(said, Listed)
    return {name for name, _ in said.rows}


def test_ids_are_listed_by_state_producer_and_how_long_they_are_open() -> None:
    ids = Ids()
    for state in TxnState:
        if state.is_open or state.is_idle:
            known = standing(state, producer_id=ProducerId(state))
            ids.put(known, state.word)
    ids.wait(1_000)
    names = {state.word for state in TxnState if state.is_open or state.is_idle}
    assert listed(ids, ListAll()) == names
    commits = frozenset({TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT})
    assert listed(ids, ListAll(states=commits)) == {"PrepareCommit", "CompleteCommit"}
    assert listed(ids, ListAll(states=frozenset())) == set()
    assert listed(ids, ListAll(producer_ids=frozenset({0, 1, 99}))) == {"Empty", "Ongoing"}
    open_ids = {"Ongoing", "PrepareCommit", "PrepareAbort"}
    assert listed(ids, ListAll(open_longer_than_ms=999)) == open_ids
    assert listed(ids, ListAll(open_longer_than_ms=1_000)) == set()


def test_open_transactions_are_counted() -> None:
    ids = begun()
    assert ids.shard.open_count == 1
    prepared = ids.ask(EndTxn(ID, PRODUCER, EPOCH, committed=False))
    assert isinstance(prepared, Prepared)
    assert ids.shard.open_count == 1
    assert dict(ids.shard.prepared()) == {ID: prepared.transaction}
    ids.ask(MarkersWritten(ID, prepared.transaction))
    assert ids.shard.open_count == 0
    assert dict(ids.shard.prepared()) == {}
    assert ids.shard.deadline() == Instant(START + ms(HOUR_MS))
