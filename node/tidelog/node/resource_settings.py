"""Settings of groups and of subscriptions to clients' metrics: known, checked and kept, as Kafka's.

What nothing acts on says so in its row.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tidelog.kernel.config import Setting, Table, boolean, integer, list_of, one_of
from tidelog.node.setting_rows import INT_MAX, whole

_DURATION: Final = re.compile(r"by_duration:P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?")
_NO_GROUPS: Final = {
    "consumer": "Known and checked; a new target is made at once.",
    "share": "Known and checked for Kafka's sake; there are no share groups.",
    "streams": "Known and checked for Kafka's sake; there are no streams groups.",
}
_NO_METRICS: Final = "Known and checked for Kafka's sake; clients are not asked for their metrics."


class Bounds(NamedTuple):
    """A broker's settings between which a group's must lie, and the one that stands in for it."""

    default: str
    least: str = ""
    most: str = ""


def _bounds(kind: str, name: str) -> Bounds:
    return Bounds(f"group.{kind}.{name}", f"group.{kind}.min.{name}", f"group.{kind}.max.{name}")


_EVERY_KIND: Final = ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
_SHARE_ONLY: Final = (
    "delivery.count.limit",
    "partition.max.record.locks",
    "record.lock.duration.ms",
)

GROUP_BOUNDS: Final[Mapping[str, Bounds]] = {
    **{f"{kind}.{name}": _bounds(kind, name) for kind in _NO_GROUPS for name in _EVERY_KIND},
    **{f"share.{name}": _bounds("share", name) for name in _SHARE_ONLY},
    "streams.initial.rebalance.delay.ms": Bounds("group.streams.initial.rebalance.delay.ms"),
    "streams.num.standby.replicas": Bounds(
        "group.streams.num.standby.replicas", most="group.streams.max.standby.replicas"
    ),
}


def _whole(name: str, default: int, low: int) -> Setting:
    rule = f"must be a whole number from {low} to {INT_MAX}"
    doc = _NO_GROUPS[name.partition(".")[0]]
    return Setting(name, integer(low, INT_MAX), str(default), rule, doc, "int", effect=False)


def _reset(given: str) -> str:
    if given not in {"latest", "earliest"} and _DURATION.fullmatch(given) is None:
        raise ValueError(given)
    return given


GROUP: Final = Table(
    [
        _whole("consumer.assignment.interval.ms", 1_000, 0),
        whole(
            "consumer.heartbeat.interval.ms",
            500,
            1,
            INT_MAX,
            "How often members of the consumer protocol say that they are there.",
        ),
        whole(
            "consumer.session.timeout.ms",
            45_000,
            1,
            INT_MAX,
            "A member of the consumer protocol that is silent for so long has left its group.",
        ),
        _whole("share.assignment.interval.ms", 1_000, 0),
        Setting(
            "share.auto.offset.reset",
            _reset,
            "latest",
            "must be latest, earliest or by_duration:PnDTnHnMn.nS",
            _NO_GROUPS["share"],
            effect=False,
        ),
        _whole("share.delivery.count.limit", 5, 2),
        _whole("share.heartbeat.interval.ms", 5_000, 1),
        Setting(
            "share.isolation.level",
            one_of("read_committed", "read_uncommitted"),
            "read_uncommitted",
            "must be read_committed or read_uncommitted",
            _NO_GROUPS["share"],
            effect=False,
        ),
        _whole("share.partition.max.record.locks", 2_000, 100),
        _whole("share.record.lock.duration.ms", 30_000, 1_000),
        Setting(
            "share.renew.acknowledge.enable",
            boolean,
            "true",
            "must be true or false",
            _NO_GROUPS["share"],
            "boolean",
            effect=False,
        ),
        _whole("share.session.timeout.ms", 45_000, 1),
        _whole("streams.assignment.interval.ms", 1_000, 0),
        _whole("streams.heartbeat.interval.ms", 5_000, 1),
        _whole("streams.initial.rebalance.delay.ms", 3_000, 0),
        _whole("streams.num.standby.replicas", 0, 0),
        _whole("streams.session.timeout.ms", 45_000, 1),
    ]
)

MATCHED: Final = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def _is_pattern(given: str) -> bool:
    name, equals, pattern = (part.strip() for part in given.partition("="))
    return bool(name in MATCHED and equals and pattern)


CLIENT_METRICS: Final = Table(
    [
        Setting(
            "interval.ms",
            integer(100, 3_600_000),
            "300000",
            "must be a whole number from 100 to 3600000",
            _NO_METRICS,
            "int",
            effect=False,
        ),
        Setting(
            "match",
            list_of(_is_pattern),
            "",
            f"must be a list of NAME=PATTERN, a name one of {', '.join(sorted(MATCHED))}",
            _NO_METRICS,
            "list",
            effect=False,
        ),
        Setting(
            "metrics",
            list_of(bool),
            "",
            "must be a list of names",
            _NO_METRICS,
            "list",
            effect=False,
        ),
    ]
)


def group_conflict(
    own: Mapping[str, str], group: Callable[[str], Any], broker: Callable[[str], Any]
) -> str | None:
    """What a group that sets these may not say; both readers give the values in force."""
    for name in own:
        bounds = GROUP_BOUNDS.get(name)
        if bounds is None:
            continue
        if bounds.least and group(name) < broker(bounds.least):
            return f"{name} must be greater than or equal to {bounds.least}"
        if bounds.most and group(name) > broker(bounds.most):
            return f"{name} must be less than or equal to {bounds.most}"
    for kind in _NO_GROUPS:
        timeout, interval = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if group(timeout) <= group(interval):
            return f"{timeout} must be greater than {interval}"
    return None


def group_text(name: str, own: Mapping[str, str], broker: Callable[[str], str]) -> str:
    """The text in force for a group: its own, else the broker's stand-in, else the default."""
    if name in own:
        return own[name]
    bounds = GROUP_BOUNDS.get(name)
    return GROUP.rows[name].default if bounds is None else broker(bounds.default)
