"""Transactions as their coordinators see them: list them all, describe some."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidelog.clients.admin.coordinators import (
    KeyType,
    from_all_brokers,
    from_coordinators,
    refusal_to_repeat,
)
from tidelog.clients.asking import Answered, Ask, Outcome, Plan
from tidelog.clients.cluster_view import ClusterView, known_code
from tidelog.clients.failures import reason_to_repeat
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.instant import WallMs
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected
from tidelog.wire.messages.k65_describe_transactions import API as DESCRIBE_TRANSACTIONS
from tidelog.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from tidelog.wire.messages.k65_describe_transactions import TransactionState as DescribedState
from tidelog.wire.messages.k66_list_transactions import API as LIST_TRANSACTIONS
from tidelog.wire.messages.k66_list_transactions import ListTransactionsRequest

_DURATIONS_FROM: Final = 1
_PATTERNS_FROM: Final = 2
"""Versions of ListTransactions. What a broker of before them cannot sort out is sorted out here."""


class State(StrEnum):
    """What a coordinator says of a transactional id, in Kafka's words."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


DECIDED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
"""What becomes of the transaction is certain; its partitions have not all heard of it yet."""
UNENDED: Final = frozenset({State.ONGOING, State.PREPARE_EPOCH_FENCE, *DECIDED})


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which transactions to list; those for which all of it holds."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int | None = None
    """Not ended, and begun longer ago than this."""
    pattern: str | None = None
    """A regular expression for the whole of the transactional id."""


ALL: Final = Wanted()


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int
    """The broker."""


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    """What its coordinator knows of a transactional id and its last transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started: WallMs | None
    """None where no transaction has begun."""
    partitions: tuple[TopicPartition, ...]
    """Those in which it has something to end."""
    coordinator: int

    @property
    def is_unended(self) -> bool:
        return self.state in UNENDED


def list_transactions(
    view: ClusterView, now: WallMs, wanted: Wanted = ALL
) -> Plan[list[ListedTransaction]]:
    """Those that all brokers coordinate, by transactional id.

    Rejected with INVALID_REGULAR_EXPRESSION where the pattern is none.
    """
    states = _states(wanted)
    if states is None:
        return []
    request = ListTransactionsRequest(
        state_filters=sorted(states),
        producer_id_filters=sorted(wanted.producer_ids),
        duration_filter=-1 if wanted.longer_than_ms is None else wanted.longer_than_ms,
        transactional_id_pattern=wanted.pattern,
    )
    found: dict[str, tuple[int, ListedTransaction]] = {}
    yield from from_all_brokers(
        view,
        KeyType.TRANSACTION,
        Ask(LIST_TRANSACTIONS, request),
        lambda broker, outcome: _take_list(broker, outcome, found),
    )
    if wanted.longer_than_ms is not None:
        yield from _keep_long_ones(view, now - wanted.longer_than_ms, found)
    listed = [one for version, one in found.values() if _matches(wanted, version, one)]
    return sorted(listed, key=lambda one: one.transactional_id)


def _states(wanted: Wanted) -> Collection[str] | None:
    """None where nothing can be in any of them."""
    if wanted.longer_than_ms is None:
        return wanted.states
    # Kafka takes any state here: one that has ended would be listed for ever.
    return (UNENDED.intersection(wanted.states) or None) if wanted.states else UNENDED


def describe_transactions(
    view: ClusterView, transactional_ids: Iterable[str]
) -> Plan[dict[str, DescribedTransaction | None]]:
    """Each at its coordinator; None where that knows no such id."""
    found: dict[str, DescribedTransaction | None] = {}
    yield from from_coordinators(
        view,
        list(dict.fromkeys(transactional_ids)),
        KeyType.TRANSACTION,
        ask=_ask_description,
        take=lambda broker, outcome: _take_description(broker, outcome, found),
        done=found,
    )
    return found


def _take_list(
    broker: int, outcome: Outcome, found: dict[str, tuple[int, ListedTransaction]]
) -> str:
    """Note its transactions with the version it spoke; why to ask it again, or nothing."""
    if not isinstance(outcome, Answered):
        return reason_to_repeat(outcome)
    if because := refusal_to_repeat(outcome.message.error_code, "listing transactions"):
        return because
    for row in outcome.message.transaction_states:
        one = ListedTransaction(
            row.transactional_id, row.producer_id, row.transaction_state, broker
        )
        found[one.transactional_id] = outcome.version, one
    return ""


def _matches(wanted: Wanted, version: int, one: ListedTransaction) -> bool:
    """Where the broker could not look at the pattern."""
    if wanted.pattern is None or version >= _PATTERNS_FROM:
        return True
    try:
        return re.fullmatch(wanted.pattern, one.transactional_id) is not None
    except re.error as error:
        raise Rejected(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None


def _keep_long_ones(
    view: ClusterView, moment: int, found: dict[str, tuple[int, ListedTransaction]]
) -> Plan[None]:
    """Those that began before; newer brokers have looked at that themselves."""
    unsure = [name for name, (version, _) in found.items() if version < _DURATIONS_FROM]
    known = yield from describe_transactions(view, unsure)
    for name, one in known.items():
        if one is None or not one.is_unended or one.started is None or one.started >= moment:
            del found[name]


def _ask_description(transactional_ids: Sequence[str]) -> Ask:
    request = DescribeTransactionsRequest(transactional_ids=list(transactional_ids))
    return Ask(DESCRIBE_TRANSACTIONS, request)


def _take_description(
    broker: int, outcome: Outcome, found: dict[str, DescribedTransaction | None]
) -> str:
    if not isinstance(outcome, Answered):
        return reason_to_repeat(outcome)
    because = ""
    for row in outcome.message.transaction_states:
        name, code = row.transactional_id, known_code(row.error_code)
        if code in RETRIABLE:
            because = f"transaction {name}: {code.name}"
        elif code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            found[name] = None
        elif code is not ErrorCode.NONE:
            raise Rejected(code, f"transaction {name!r}")
        else:
            found[name] = _described(broker, row)
    return because


def _described(broker: int, row: DescribedState) -> DescribedTransaction:
    start = row.transaction_start_time_ms
    return DescribedTransaction(
        transactional_id=row.transactional_id,
        state=row.transaction_state,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        timeout_ms=row.transaction_timeout_ms,
        started=None if start < 0 else WallMs(start),
        partitions=tuple(
            (topic.topic, Partition(number)) for topic in row.topics for number in topic.partitions
        ),
        coordinator=broker,
    )
