"""Who leads: the five leader selectors as tables."""

import pytest

from tidelog.coordinator.controller import selectors
from tidelog.coordinator.controller.selectors import Candidates, Selector
from tidelog.kernel.ids import NO_LEADER, BrokerId

Row = tuple[str, str, str, str, str, str]


def ids(digits: str) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(int(digit)) for digit in digits)


def selected(selector: Selector, row: Row) -> str:
    """Replicas, ISR, ELR, leader, who is fit, who may though unclean; '-' for nobody."""
    replicas, isr, elr, leader, fit, unclean = row
    chosen = selector(
        Candidates(
            replicas=ids(replicas),
            isr=ids(isr),
            elr=ids(elr),
            leader=ids(leader)[0] if leader else NO_LEADER,
            fit=lambda broker: broker in ids(fit),
            unclean=ids(unclean),
        )
    )
    return "-" if chosen == NO_LEADER else str(chosen)


@pytest.mark.parametrize(
    ("row", "leader"),
    [
        (("123", "123", "", "2", "123", ""), "2"),
        (("123", "123", "", "2", "13", "13"), "2"),
        (("123", "", "123", "", "123", ""), "-"),
    ],
)
def test_no_op(row: Row, leader: str) -> None:
    assert selected(selectors.no_op, row) == leader


@pytest.mark.parametrize(
    ("row", "leader"),
    [
        # Who is in sync, in the order of the replicas, not of the ISR.
        (("123", "321", "", "", "123", ""), "1"),
        (("123", "321", "", "", "23", ""), "2"),
        (("213", "12", "", "", "123", ""), "2"),
        # Nobody behind while somebody in sync lives.
        (("123", "3", "1", "", "123", "2"), "3"),
        # Nobody in sync lives: who is eligible.
        (("123", "", "32", "", "123", "1"), "2"),
        (("123", "1", "3", "", "23", "2"), "3"),
        # Nobody eligible lives: nobody, unless it is allowed.
        (("123", "", "1", "", "23", ""), "-"),
        (("123", "", "1", "", "23", "32"), "3"),
        (("123", "", "1", "", "2", "32"), "2"),
        (("123", "", "1", "", "", "32"), "-"),
        # A stranger in the ISR is nobody's replica.
        (("12", "3", "", "", "123", ""), "-"),
    ],
)
def test_offline_partition(row: Row, leader: str) -> None:
    assert selected(selectors.offline_partition, row) == leader


@pytest.mark.parametrize(
    ("row", "leader"),
    [
        # The replicas are those that it shall have.
        (("234", "1234", "", "2", "1234", ""), "2"),
        (("234", "1234", "", "1", "1234", ""), "2"),
        (("234", "134", "", "1", "1234", ""), "3"),
        (("234", "1234", "", "1", "14", ""), "4"),
        (("234", "1", "", "1", "1234", ""), "-"),
        (("234", "123", "", "2", "34", ""), "3"),
        # Never an eligible or an unclean one: there is no hurry.
        (("234", "1", "2", "1", "1234", "34"), "-"),
    ],
)
def test_reassigned_partition(row: Row, leader: str) -> None:
    assert selected(selectors.reassigned_partition, row) == leader


@pytest.mark.parametrize(
    ("row", "leader"),
    [
        (("123", "123", "", "2", "123", ""), "1"),
        (("123", "123", "", "1", "123", ""), "1"),
        (("123", "23", "", "2", "123", ""), "2"),
        (("123", "123", "", "2", "23", ""), "2"),
        (("123", "23", "1", "2", "123", "1"), "2"),
        (("123", "", "1", "", "123", ""), "-"),
    ],
)
def test_preferred_replica(row: Row, leader: str) -> None:
    assert selected(selectors.preferred_replica, row) == leader


@pytest.mark.parametrize(
    ("row", "leader"),
    [
        # The one that stops is not fit.
        (("123", "23", "", "1", "23", ""), "2"),
        (("123", "23", "", "1", "3", ""), "3"),
        (("123", "3", "", "1", "23", ""), "3"),
        (("123", "12", "", "2", "23", ""), "2"),
        # Out of sync, but it has all that is committed.
        (("123", "", "3", "1", "23", ""), "3"),
        # Nobody is made unclean for a broker that comes back.
        (("123", "", "", "1", "23", "23"), "-"),
    ],
)
def test_controlled_shutdown(row: Row, leader: str) -> None:
    assert selected(selectors.controlled_shutdown, row) == leader
