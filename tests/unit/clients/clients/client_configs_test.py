"""Waiting until a change of settings is in force, and what counts as being so."""

import pytest

from harness.machines.plans import drive, replies
from tidelog.clients.admin.configs import (
    Change,
    Kind,
    Operation,
    Origin,
    Resource,
    wait_for_configs,
)
from tidelog.clients.asking import Pause
from tidelog.wire.messages.k32_describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

TOPIC = Resource(Kind.TOPIC, "orders")
BROKER = Resource(Kind.BROKER, "1")
ALL_BROKERS = Resource(Kind.BROKER, "")
NAME = "retention.ms"
SET, DELETE, APPEND, SUBTRACT = Operation


def says(
    resource: Resource, value: str | None, origin: Origin | None, *, sensitive: bool = False
) -> DescribeConfigsResponse:
    """One setting as a broker has it; without an origin it has none of this name."""
    rows = [
        DescribeConfigsResourceResult(
            name=NAME,
            value=value,
            read_only=False,
            config_source=origin,
            is_sensitive=sensitive,
            synonyms=[],
        )
        for origin in [origin]
        if origin is not None
    ]
    result = DescribeConfigsResult(
        error_code=0,
        error_message=None,
        resource_type=resource.kind,
        resource_name=resource.name,
        configs=rows,
    )
    return DescribeConfigsResponse(results=[result])


def looks(resource: Resource, change: Change, *answers: DescribeConfigsResponse) -> int:
    """How often it was waited before the change was seen."""
    pauses: list[Pause] = []
    drive(wait_for_configs(resource, [change]), replies(*answers), pauses)
    return len(pauses)


@pytest.mark.parametrize(
    ("resource", "own"),
    [
        (TOPIC, Origin.TOPIC),
        (BROKER, Origin.BROKER),
        (ALL_BROKERS, Origin.ALL_BROKERS),
        (Resource(Kind.GROUP, "readers"), Origin.GROUP),
    ],
)
def test_a_setting_is_in_force_once_its_own_resource_has_the_value(
    resource: Resource, own: Origin
) -> None:
    old = says(resource, "5", Origin.START)
    stale = says(resource, "5", own)
    new = says(resource, "7", own)
    assert looks(resource, Change(NAME, SET, "7"), old, stale, new) == 2
    assert looks(resource, Change(NAME, DELETE), new, old) == 1


@pytest.mark.parametrize(
    ("change", "before", "after"),
    [
        (Change(NAME, APPEND, "compact"), "delete", "delete,compact"),
        (Change(NAME, SUBTRACT, "delete"), "delete,compact", "compact"),
        (Change(NAME, SET, "a, B"), "a", "b,a"),
    ],
)
def test_a_list_is_in_force_in_whatever_order_and_spelling(
    change: Change, before: str, after: str
) -> None:
    answers = [says(TOPIC, value, Origin.TOPIC) for value in (before, after)]
    assert looks(TOPIC, change, *answers) == 1


def test_what_is_not_there_is_taken_back_and_not_set() -> None:
    nothing, new = says(ALL_BROKERS, None, None), says(ALL_BROKERS, "7", Origin.ALL_BROKERS)
    assert looks(ALL_BROKERS, Change(NAME, DELETE), nothing) == 0
    assert looks(ALL_BROKERS, Change(NAME, SET, "7"), nothing, new) == 1


def test_a_hidden_value_is_in_force_once_somebody_set_one() -> None:
    hidden = says(BROKER, None, Origin.BROKER, sensitive=True)
    old = says(BROKER, None, Origin.START, sensitive=True)
    assert looks(BROKER, Change(NAME, SET, "secret"), old, hidden) == 1
