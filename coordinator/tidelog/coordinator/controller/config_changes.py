"""AlterConfigs and IncrementalAlterConfigs: settings change as records.

A resource's changes are taken all or none; one resource's failure never touches its neighbours.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, TypeVar

from msgspec import Struct

from tidelog.coordinator.controller.other_configs import (
    OTHER_TABLES,
    check_group,
    check_other,
    check_resource,
)
from tidelog.coordinator.controller.topic_configs import (
    HINT_NAME_CHARS_MAX,
    check_one,
    check_together,
)
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.config import SettingError, Table, canonical
from tidelog.kernel.ids import BrokerId
from tidelog.kernel.limits import (
    RESOURCES_WITH_SETTINGS_MAX,
    STRING_BYTES_MAX,
)
from tidelog.kernel.texts import quoted
from tidelog.kernel.topic_names import fault_of_name
from tidelog.node.changing import DYNAMIC, PER_BROKER, flush_conflict, is_list, too_many_changes
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.settings import BROKER, TOPIC, topic_reader
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages import k33_alter_configs as replacing
from tidelog.wire.messages import k44_incremental_alter_configs as altering
from tidelog.wire.metadata_records import ConfigChanged, MetadataRecord, ResourceKind

RESOURCES_HINTED_MAX: Final = 20
_BROKER_ID_CHARS_MAX: Final = 10
"""An int32 has no more digits."""
_FOR_ALL: Final = "min.insync.replicas"

_Resource = replacing.AlterConfigsResource | altering.AlterConfigsResource
_ResourceT = TypeVar("_ResourceT", bound=_Resource)
_Values = Mapping[str, str | None]
_Wanted = Callable[[_ResourceT, Table, Mapping[str, str]], dict[str, str | None]]
"""What a resource's settings shall be, given what they are; None: not set any more."""


class Operation(IntEnum):
    """What happens to one entry, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class _Outcome(Struct):
    resource: _Resource
    code: ErrorCode = ErrorCode.NONE
    detail: str | None = None
    records: Sequence[ConfigChanged] = ()


def alter_configs(
    image: MetadataImage, settings: ControllerSettings, request: replacing.AlterConfigsRequest
) -> tuple[tuple[MetadataRecord, ...], replacing.AlterConfigsResponse]:
    outcomes = _Changes(image, settings).decide(request.resources, _replaced)
    rows = [
        replacing.AlterConfigsResourceResponse(
            error_code=one.code,
            error_message=one.detail,
            resource_type=one.resource.resource_type,
            resource_name=one.resource.resource_name,
        )
        for one in outcomes
    ]
    records = () if request.validate_only else _records(outcomes)
    return records, replacing.AlterConfigsResponse(responses=rows)


def incremental_alter_configs(
    image: MetadataImage,
    settings: ControllerSettings,
    request: altering.IncrementalAlterConfigsRequest,
) -> tuple[tuple[MetadataRecord, ...], altering.IncrementalAlterConfigsResponse]:
    outcomes = _Changes(image, settings).decide(request.resources, _altered)
    rows = [
        altering.AlterConfigsResourceResponse(
            error_code=one.code,
            error_message=one.detail,
            resource_type=one.resource.resource_type,
            resource_name=one.resource.resource_name,
        )
        for one in outcomes
    ]
    records = () if request.validate_only else _records(outcomes)
    return records, altering.IncrementalAlterConfigsResponse(responses=rows)


class _Changes:
    """Decides one request."""

    def __init__(self, image: MetadataImage, settings: ControllerSettings) -> None:
        self._image = image
        self._given = settings.layers(image).effective()
        self._hinting = True
        self._made = 0
        """Resources this request gives their first setting."""

    def decide(
        self, resources: Sequence[_ResourceT], wanted: _Wanted[_ResourceT]
    ) -> list[_Outcome]:
        changes = sum(len(resource.configs) for resource in resources)
        too_many = too_many_changes(changes, len(resources))
        if too_many is not None:
            raise Rejected(ErrorCode.INVALID_REQUEST, too_many)
        self._hinting = len(resources) <= RESOURCES_HINTED_MAX
        times = Counter((one.resource_type, one.resource_name) for one in resources)
        return [
            self._outcome(one, wanted, twice=times[one.resource_type, one.resource_name] > 1)
            for one in resources
        ]

    def _outcome(
        self, resource: _ResourceT, wanted: _Wanted[_ResourceT], *, twice: bool
    ) -> _Outcome:
        try:
            if twice:
                raise _bad("Each resource must appear at most once.")
            _check_shape(resource)
            if resource.resource_type == ResourceKind.TOPIC:
                records = self._topic(resource, wanted)
            elif resource.resource_type == ResourceKind.BROKER:
                records = self._broker(resource, wanted)
            elif resource.resource_type in OTHER_TABLES:
                records = self._other(ResourceKind(resource.resource_type), resource, wanted)
            else:
                raise _bad(f"Unknown resource type {resource.resource_type}")
        except Rejected as refused:
            # Not the exception itself, which refers to the frames that refer to the outcome.
            return _Outcome(resource, refused.code, refused.detail or None)
        return _Outcome(resource, records=records)

    def _topic(self, resource: _ResourceT, wanted: _Wanted[_ResourceT]) -> list[ConfigChanged]:
        name = resource.resource_name
        if not name:
            raise _bad("Default topic resources are not allowed.")
        fault = fault_of_name(name)
        if fault is not None:
            raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        topic = self._image.names.get(name)
        now = topic.configs if topic is not None else {}
        changed = wanted(resource, TOPIC, now)
        for key, value in changed.items():
            if value is not None:
                changed[key] = check_one(key, value, hinting=self._hinting)
        check_together(_after(now, changed), self._given)
        if topic is None:
            raise Rejected(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            )
        return _differences(ResourceKind.TOPIC, name, now, changed)

    def _broker(self, resource: _ResourceT, wanted: _Wanted[_ResourceT]) -> list[ConfigChanged]:
        name = resource.resource_name
        if name:
            self._check_broker(name)
        now = self._image.broker_configs.get(name, {})
        changed = wanted(resource, BROKER, now)
        if name and changed.get(_FOR_ALL) is not None:
            # Its leaders would commit with fewer replicas than those that are thought to have it.
            raise Rejected(
                ErrorCode.INVALID_CONFIG,
                f"Broker-level {_FOR_ALL} cannot be altered while ELR is enabled.",
            )
        _check_dynamic(changed, hinting=self._hinting, one_broker=bool(name))
        for key, value in changed.items():
            if value is not None:
                changed[key] = _check_broker_value(key, value)
        after = {**self._given, **_after(now, changed)}
        conflict = flush_conflict(changed, topic_reader({}, after))
        if conflict is not None:
            raise _bad(conflict)
        return _differences(ResourceKind.BROKER, name, now, changed)

    def _other(
        self, kind: ResourceKind, resource: _ResourceT, wanted: _Wanted[_ResourceT]
    ) -> list[ConfigChanged]:
        """A group, or a subscription to clients' metrics: it needs not be there otherwise."""
        name = resource.resource_name
        check_resource(kind, name)
        resources = self._image.configs_of(kind)
        now = resources.get(name, {})
        changed = wanted(resource, OTHER_TABLES[kind], now)
        changed = {key: check_other(kind, key, value) for key, value in changed.items()}
        after = _after(now, changed)
        if kind is ResourceKind.GROUP:
            check_group(after, self._given)
        if after and not now:
            self._made += 1
            if len(resources) + self._made > RESOURCES_WITH_SETTINGS_MAX:
                raise _bad(
                    f"{RESOURCES_WITH_SETTINGS_MAX} have settings of their own already; "
                    "take some away first"
                )
        return _differences(kind, name, now, changed)

    def _check_broker(self, name: str) -> None:
        if not (name.isascii() and name.isdecimal() and len(name) <= _BROKER_ID_CHARS_MAX):
            raise _bad(f"Unable to parse broker name as a base 10 number: {quoted(name)!r}")
        if str(int(name)) != name:
            raise _bad(f"Unable to parse broker name as a base 10 number: {name!r}")
        if BrokerId(int(name)) not in self._image.brokers:
            raise Rejected(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {quoted(name)} found."
            )


def _check_shape(resource: _Resource) -> None:
    names = [one.name for one in resource.configs]
    if len(set(names)) < len(names):
        raise _bad("Error due to duplicate config keys")
    nothing = [
        one.name
        for one in resource.configs
        if one.value is None and getattr(one, "config_operation", Operation.SET) != Operation.DELETE
    ]
    if nothing:
        raise _bad(f"Null value not supported for : {quoted(', '.join(nothing))}")


def _check_dynamic(names: Iterable[str], *, hinting: bool, one_broker: bool) -> None:
    for name in names:
        if name not in BROKER:
            raise Rejected(ErrorCode.INVALID_CONFIG, _unknown(name, hinting=hinting))
    fixed = sorted(set(names) - DYNAMIC)
    if fixed:
        raise _bad(
            f"Cannot update these configs dynamically: [{', '.join(fixed)}]; "
            "they are given when a broker starts"
        )
    single = sorted(PER_BROKER.intersection(names))
    if single and not one_broker:
        raise _bad(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(single)}]"
        )


def _unknown(name: str, *, hinting: bool) -> str:
    if hinting and len(name) <= HINT_NAME_CHARS_MAX:
        try:
            BROKER.check(name, "")
        except SettingError as error:
            return str(error)
    return f"Unknown broker config name: {quoted(name)}"


def _check_broker_value(name: str, value: str) -> str:
    try:
        BROKER.check(name, value)
    except SettingError as error:
        # Kafka refuses an unfit value of a broker as a bad request, not as a bad configuration.
        raise _bad(str(error)) from error
    return canonical(BROKER.row(name), value)


def _replaced(
    resource: replacing.AlterConfigsResource, _table: Table, now: Mapping[str, str]
) -> dict[str, str | None]:
    gone: dict[str, str | None] = dict.fromkeys(now)
    return gone | {one.name: one.value for one in resource.configs}


def _altered(
    resource: altering.AlterConfigsResource, table: Table, now: Mapping[str, str]
) -> dict[str, str | None]:
    return {one.name: _operated(one, table, now.get(one.name)) for one in resource.configs}


def _operated(entry: altering.AlterableConfig, table: Table, now: str | None) -> str | None:
    """An entry's value after its operation."""
    try:
        operation = Operation(entry.config_operation)
    except ValueError:
        raise _bad(f"Unknown operation type {entry.config_operation}") from None
    if operation is Operation.SET:
        return entry.value
    if operation is Operation.DELETE:
        return None
    if entry.name in table and not is_list(table, entry.name):
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.name} to key {quoted(entry.name)} because its type is not LIST.",
        )
    assert entry.value is not None, "checked with the shape"
    if now is None and entry.name in table:
        now = table.row(entry.name).default
    there = now.split(",") if now else []
    named = entry.value.split(",")
    if operation is Operation.APPEND:
        return _checked_length(entry.name, ",".join(dict.fromkeys([*there, *named])))
    return ",".join(one for one in there if one not in named)


def _checked_length(name: str, value: str) -> str:
    """INVALID_CONFIG if no answer could carry the value: nobody could read the setting any more."""
    if len(value.encode()) > STRING_BYTES_MAX:
        raise Rejected(
            ErrorCode.INVALID_CONFIG,
            f"{quoted(name)} would be longer than {STRING_BYTES_MAX} bytes",
        )
    return value


def _after(now: Mapping[str, str], changed: _Values) -> dict[str, str]:
    merged: dict[str, str | None] = {**now, **changed}
    return {name: value for name, value in merged.items() if value is not None}


def _differences(
    kind: ResourceKind, resource: str, now: Mapping[str, str], changed: _Values
) -> list[ConfigChanged]:
    return [
        ConfigChanged(kind, resource, name, value)
        for name, value in changed.items()
        if now.get(name) != value
    ]


def _records(outcomes: Iterable[_Outcome]) -> tuple[MetadataRecord, ...]:
    return tuple(record for one in outcomes for record in one.records)


def _bad(detail: str) -> Rejected:
    return Rejected(ErrorCode.INVALID_REQUEST, detail)
