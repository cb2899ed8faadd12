"""Settings of topics, brokers and groups: read them and where they come from, change entries.

Who is asked: of a broker's settings that very broker, of all else anyone. A change is not sent
twice where the first sending may have worked, but for a broker that says it has no controller.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from tidelog.clients.asking import Answered, Ask, Call, Outcome, Pause, Plan, Somewhere
from tidelog.clients.cluster_view import known_code
from tidelog.clients.failures import failure_of, response
from tidelog.clients.retry import BACKOFF
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k32_describe_configs import API as DESCRIBE_CONFIGS
from tidelog.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from tidelog.wire.messages.k44_incremental_alter_configs import (
    API as INCREMENTAL_ALTER_CONFIGS,
)
from tidelog.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)

RESOURCES_PER_REQUEST = 500


class Kind(IntEnum):
    """What has settings, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Resource(NamedTuple):
    """By its name, a broker by its id; a broker without id stands for all of them."""

    kind: Kind
    name: str

    @property
    def asked(self) -> int | Somewhere:
        """Who knows."""
        one_broker = self.kind is Kind.BROKER and self.name != ""
        return int(self.name) if one_broker else Somewhere.ANY

    @property
    def own_origin(self) -> "Origin":
        """That of a value which somebody set for this very resource."""
        match self.kind:
            case Kind.TOPIC:
                return Origin.TOPIC
            case Kind.GROUP:
                return Origin.GROUP
            case Kind.BROKER:
                return Origin.BROKER if self.name else Origin.ALL_BROKERS


class Origin(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    START = 4
    """The broker was started with it."""
    DEFAULT = 5
    GROUP = 8


_ORIGINS = frozenset(map(int, Origin))


class Said(NamedTuple):
    """One place that says something of a setting."""

    name: str
    value: str | None
    origin: Origin


@dataclass(frozen=True, slots=True)
class Entry:
    """One setting as it is in force."""

    name: str
    value: str | None
    origin: Origin
    read_only: bool
    sensitive: bool
    synonyms: tuple[Said, ...]
    documentation: str

    @property
    def default(self) -> str | None:
        """What it would be if nobody had set it, where the cluster says so."""
        if self.origin is Origin.DEFAULT:
            return self.value
        unit = self.name.rpartition(".")[2]
        return next(
            (
                one.value
                for one in self.synonyms
                if one.origin is Origin.DEFAULT and one.name.rpartition(".")[2] == unit
            ),
            None,
        )


class Operation(IntEnum):
    """What happens to one entry, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Change(NamedTuple):
    """One entry of one resource."""

    name: str
    operation: Operation
    value: str | None = None


def describe_configs(resources: Sequence[Resource]) -> Plan[dict[Resource, list[Entry]]]:
    """All settings of each; Rejected by the first that has none."""
    calls, asked = [], []
    for to in dict.fromkeys(one.asked for one in resources):
        wanted = [one for one in resources if one.asked == to]
        for first in range(0, len(wanted), RESOURCES_PER_REQUEST):
            part = wanted[first : first + RESOURCES_PER_REQUEST]
            asked.append(part)
            calls.append(Call(to, _ask(part)))
    found: dict[Resource, list[Entry]] = {}
    if calls:
        outcomes = yield calls
        for part, outcome in zip(asked, outcomes, strict=True):
            found.update(_described(part, outcome))
    return found


def alter_configs(
    resource: Resource, changes: Sequence[Change], *, validate_only: bool = False
) -> Plan[None]:
    """All of the changes or none; Rejected with the cluster's reason."""
    entries = [
        AlterableConfig(name=one.name, config_operation=one.operation, value=one.value)
        for one in changes
    ]
    row = AlterConfigsResource(
        resource_type=resource.kind, resource_name=resource.name, configs=entries
    )
    request = IncrementalAlterConfigsRequest(resources=[row], validate_only=validate_only)
    failures = 0
    while True:
        (outcome,) = yield [Call(resource.asked, Ask(INCREMENTAL_ALTER_CONFIGS, request))]
        (result,) = response(outcome).responses
        if result.error_code != ErrorCode.NOT_CONTROLLER:
            break
        failures += 1
        yield Pause(BACKOFF.wait(failures), "no broker says that it knows the controller")
    _check(result)


def wait_for_configs(resource: Resource, changes: Sequence[Change]) -> Plan[None]:
    """Until who is asked says the same: Kafka's brokers learn of a change after its answer."""
    waits = 0
    while True:
        found = yield from describe_configs([resource])
        now = {one.name: one for one in found[resource]}
        late = [one for one in changes if not _is_in_force(one, now.get(one.name), resource)]
        if not late:
            return
        waits += 1
        yield Pause(BACKOFF.wait(waits), f"{late[0].name} is not in force yet")


def _is_in_force(change: Change, now: Entry | None, resource: Resource) -> bool:
    is_own = now is not None and now.origin is resource.own_origin
    if now is None or not is_own:
        return change.operation in {Operation.DELETE, Operation.SUBTRACT}
    asked, there = _words(change.value), _words(now.value)
    match change.operation:
        case Operation.DELETE:
            return False
        case Operation.SET:
            return now.sensitive or asked == there
        case Operation.APPEND:
            return asked <= there
        case Operation.SUBTRACT:
            return not asked & there


def _words(value: str | None) -> set[str]:
    """A list's elements, in whatever order and spelling a broker keeps them."""
    return {word.strip().lower() for word in (value or "").split(",")}


def _ask(resources: Sequence[Resource]) -> Ask:
    rows = [
        DescribeConfigsResource(
            resource_type=one.kind, resource_name=one.name, configuration_keys=None
        )
        for one in resources
    ]
    request = DescribeConfigsRequest(
        resources=rows, include_synonyms=True, include_documentation=True
    )
    return Ask(DESCRIBE_CONFIGS, request)


def _described(asked: Sequence[Resource], outcome: Outcome) -> dict[Resource, list[Entry]]:
    if not isinstance(outcome, Answered):
        raise failure_of(outcome)
    results: list[DescribeConfigsResult] = outcome.message.results
    by_name = {(one.resource_type, one.resource_name): one for one in results}
    found = {}
    for resource in asked:
        result = by_name[resource.kind, resource.name]
        _check(result)
        found[resource] = sorted(map(_entry, result.configs), key=lambda one: one.name)
    return found


def _check(result: DescribeConfigsResult | AlterConfigsResourceResponse) -> None:
    if result.error_code != ErrorCode.NONE:
        raise Rejected(known_code(result.error_code), result.error_message or "")


def _entry(row: DescribeConfigsResourceResult) -> Entry:
    return Entry(
        name=row.name,
        value=row.value,
        origin=_origin(row.config_source),
        read_only=row.read_only,
        sensitive=row.is_sensitive,
        synonyms=tuple(Said(one.name, one.value, _origin(one.source)) for one in row.synonyms),
        documentation=row.documentation or "",
    )


def _origin(source: int) -> Origin:
    return Origin(source) if source in _ORIGINS else Origin.UNKNOWN
