"""Settings of groups and of subscriptions to clients' metrics: checked when they come."""

from collections.abc import Mapping
from typing import Any, Final

from tidelog.kernel.config import SettingError, Table, canonical
from tidelog.kernel.texts import quoted
from tidelog.node.resource_settings import CLIENT_METRICS, GROUP, group_conflict, group_text
from tidelog.node.settings import BROKER
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.metadata_records import ResourceKind

OTHER_TABLES: Final[Mapping[ResourceKind, Table]] = {
    ResourceKind.CLIENT_METRICS: CLIENT_METRICS,
    ResourceKind.GROUP: GROUP,
}
_NAMELESS: Final = {
    ResourceKind.CLIENT_METRICS: "Subscription name can't be empty",
    ResourceKind.GROUP: "Default group resources are not allowed.",
}
# Kafka refuses them with different codes.
_CODES: Final = {
    ResourceKind.CLIENT_METRICS: ErrorCode.INVALID_REQUEST,
    ResourceKind.GROUP: ErrorCode.INVALID_CONFIG,
}
_UNKNOWN: Final = {
    ResourceKind.CLIENT_METRICS: "Unknown client metrics configuration",
    ResourceKind.GROUP: "Unknown group config name",
}


def check_resource(kind: ResourceKind, name: str) -> None:
    """INVALID_REQUEST where there can be no resource of that name."""
    if not name:
        raise Rejected(ErrorCode.INVALID_REQUEST, _NAMELESS[kind])


def check_other(kind: ResourceKind, name: str, value: str | None) -> str | None:
    """The text that is kept, None of a setting that goes; else refused as Kafka does."""
    table = OTHER_TABLES[kind]
    if name not in table:
        raise Rejected(_CODES[kind], f"{_UNKNOWN[kind]}: {quoted(name)}")
    if value is None:
        return None
    try:
        table.check(name, value)
    except SettingError as error:
        raise Rejected(_CODES[kind], str(error)) from error
    return canonical(table.row(name), value)


def check_group(own: Mapping[str, str], broker: Mapping[str, str]) -> None:
    """INVALID_CONFIG where a group's settings contradict each other, or the brokers' bounds."""

    def of_brokers(name: str) -> str:
        return broker.get(name) or BROKER.row(name).default

    def of_group(name: str) -> Any:  # noqa: ANN401 -- as Setting.read
        return GROUP.rows[name].read(group_text(name, own, of_brokers))

    conflict = group_conflict(own, of_group, lambda name: BROKER.row(name).read(of_brokers(name)))
    if conflict is not None:
        raise Rejected(ErrorCode.INVALID_CONFIG, conflict)
