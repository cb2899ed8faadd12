"""Which broker coordinates a group or a transactional id, and what it says.

A coordinator moves with the leader of its partition. So who is asked in vain is asked for again,
until the time of whoever runs the plan is over.
"""

from collections.abc import Callable, Collection, Container, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from tidelog.clients.asking import (
    Address,
    Answered,
    Ask,
    Call,
    Outcome,
    Pause,
    Plan,
    Somewhere,
)
from tidelog.clients.cluster_view import ClusterView, known_code, pause_after, refresh
from tidelog.clients.failures import reason_to_repeat
from tidelog.clients.retry import BACKOFF
from tidelog.wire.errors import RETRIABLE, ErrorCode, Rejected
from tidelog.wire.messages.k10_find_coordinator import API as FIND_COORDINATOR
from tidelog.wire.messages.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

KEYS_PER_REQUEST = 500


class KeyType(IntEnum):
    """What is coordinated."""

    GROUP = 0
    TRANSACTION = 1


class CoordinatorAnswer(NamedTuple):
    """What one broker says, yes or no."""

    broker: int
    address: Address
    code: ErrorCode
    detail: str


def ask_coordinator(key: str, key_type: KeyType) -> Plan[CoordinatorAnswer]:
    """Ask once; only a broker that does not answer at all is asked again."""
    failures = 0
    while True:
        (outcome,) = yield [_search([key], key_type)]
        if isinstance(outcome, Answered):
            message: FindCoordinatorResponse = outcome.message
            return _said(message.coordinators[0] if message.coordinators else message)
        failures += 1
        yield pause_after(outcome, failures)


def find_coordinator(view: ClusterView, key: str, key_type: KeyType) -> Plan[int]:
    """The broker, once there is one that the view knows; Rejected where there never will be."""
    failures = 0
    while True:
        answer = yield from ask_coordinator(key, key_type)
        because = _not_yet(view, key, answer)
        if not because:
            return answer.broker
        failures += 1
        yield Pause(BACKOFF.wait(failures), because)
        yield from refresh(view, ())


def at_coordinator(
    view: ClusterView,
    key: str,
    key_type: KeyType,
    ask: Ask,
    code_of: Callable[[Any], int],
) -> Plan[tuple[int, Any]]:
    """The coordinator's answer and who that is; asked again while it says that it may not yet, or
    that it is another."""
    failures = 0
    while True:
        broker = view.coordinators.get((key_type, key))
        if broker is None or broker not in view.brokers:
            broker = yield from find_coordinator(view, key, key_type)
            view.coordinators[key_type, key] = broker
        (outcome,) = yield [Call(broker, ask)]
        reason = reason_to_repeat(outcome)
        if isinstance(outcome, Answered):
            code = known_code(code_of(outcome.message))
            if code not in RETRIABLE:
                return broker, outcome.message
            reason = f"{_WORDS[key_type]} {key}: {code.name}"
        view.coordinators.pop((key_type, key), None)
        failures += 1
        yield Pause(BACKOFF.wait(failures), reason)
        yield from refresh(view, ())


def from_coordinators(
    view: ClusterView,
    keys: Collection[str],
    key_type: KeyType,
    *,
    ask: Callable[[Sequence[str]], Ask],
    take: Callable[[int, Outcome], str],
    done: Container[str],
) -> Plan[None]:
    """Ask about many keys, each at its coordinator, until every one is `done`.

    `take` notes what a broker answered; it returns why some of it must be asked again, or nothing.
    """
    failures = 0
    while missing := [one for one in keys if one not in done]:
        found, because = yield from _find(view, missing[:KEYS_PER_REQUEST], key_type)
        outcomes = yield [Call(broker, ask(named)) for broker, named in found.items()]
        for broker, outcome in zip(found, outcomes, strict=True):
            because = take(broker, outcome) or because
        if because:
            failures += 1
            yield Pause(BACKOFF.wait(failures), because)
            yield from refresh(view, ())


def from_all_brokers(
    view: ClusterView, key_type: KeyType, ask: Ask, take: Callable[[int, Outcome], str]
) -> Plan[None]:
    """Ask every broker for its part of a whole, until all whose part matters answer in one round.

    `take` notes an answer; it returns why its broker must be asked again, or nothing.
    """
    failures = 0
    excused: Collection[int] = ()
    yield from refresh(view, ())
    while True:
        brokers = sorted(view.brokers.keys() - set(excused))
        outcomes = yield [Call(broker, ask) for broker in brokers]
        answers = dict(zip(brokers, outcomes, strict=True))
        because = ""
        for broker, outcome in answers.items():
            reason = take(broker, outcome)
            because = f"broker {broker}: {reason}" if reason else because
        if not because:
            return
        failures += 1
        yield Pause(BACKOFF.wait(failures), because)
        # All are asked again: what a broker that went coordinated has another coordinator now,
        # which may be one that has answered before.
        yield from refresh(view, [_TOPICS[key_type]])
        silent = {broker for broker, one in answers.items() if not isinstance(one, Answered)}
        excused = _without_part(view, _TOPICS[key_type], silent)


def _without_part(view: ClusterView, topic: str, silent: Collection[int]) -> Collection[int]:
    """Those that coordinate nothing, for others lead all that there is; a cluster may list a broker
    for a while after its end."""
    known = view.topics.get(topic)
    leaders = {one.leader for one in known.partitions.values()} if known is not None else set()
    if not leaders or not leaders <= view.brokers.keys():
        return ()
    return set(silent) - leaders


def refusal_to_repeat(error_code: int, what: str) -> str:
    """Why to ask again who refused, or nothing; Rejected where that is of no use."""
    code = known_code(error_code)
    if code in RETRIABLE:
        return code.name
    if code is not ErrorCode.NONE:
        raise Rejected(code, what)
    return ""


_TOPICS = {KeyType.GROUP: "__consumer_offsets", KeyType.TRANSACTION: "__transaction_state"}
"""Who leads a partition of it coordinates what that keeps."""
_WORDS = {KeyType.GROUP: "group", KeyType.TRANSACTION: "transaction"}


def _search(keys: Sequence[str], key_type: KeyType) -> Call:
    """For all of the keys; a broker of before they came in lists answers for the first."""
    request = FindCoordinatorRequest(key=keys[0], key_type=key_type, coordinator_keys=list(keys))
    return Call(Somewhere.ANY, Ask(FIND_COORDINATOR, request))


def _find(
    view: ClusterView, keys: Sequence[str], key_type: KeyType
) -> Plan[tuple[dict[int, list[str]], str]]:
    """Keys by their coordinator, asked for once; and why one has none, if one has not."""
    found: dict[int, list[str]] = {}
    (outcome,) = yield [_search(keys, key_type)]
    if not isinstance(outcome, Answered):
        return found, reason_to_repeat(outcome)
    rows = _rows(keys, outcome.message)
    because = "" if rows else f"no coordinator for {keys[0]!r}"
    for key, row in rows.items():
        answer = _said(row)
        reason = _not_yet(view, key, answer)
        if not reason:
            found.setdefault(answer.broker, []).append(key)
        because = reason or because
    return found, because


def _rows(
    keys: Sequence[str], message: FindCoordinatorResponse
) -> dict[str, Coordinator | FindCoordinatorResponse]:
    """By key: old versions answer one at the top, newer ones all of them in a list."""
    if not message.coordinators:
        return {keys[0]: message}
    return {row.key: row for row in message.coordinators if row.key in keys}


def _said(one: Coordinator | FindCoordinatorResponse) -> CoordinatorAnswer:
    return CoordinatorAnswer(
        one.node_id,
        Address(one.host, one.port),
        known_code(one.error_code),
        one.error_message or "",
    )


def _not_yet(view: ClusterView, key: str, answer: CoordinatorAnswer) -> str:
    """Why the key has no coordinator that can be asked, or nothing; Rejected where it never has."""
    if answer.code is ErrorCode.NONE and answer.broker in view.brokers:
        return ""
    if answer.code is not ErrorCode.NONE and answer.code not in RETRIABLE:
        raise Rejected(answer.code, answer.detail or key)
    return f"no coordinator for {key!r}: {answer.detail or answer.code.name}"
