"""DescribeConfigs (key 32), versions 1-4. v1 synonyms, v3 types and documentation.

Not done: log levels; there is nothing to set of them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tidelog.kernel import limits
from tidelog.kernel.config import Setting, Table
from tidelog.kernel.topic_names import fault_of_name
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parting, Parts, Turn, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.api.resources import Resource, check_own_broker
from tidelog.node.broker_settings import EVERY_BROKER
from tidelog.node.changing import DYNAMIC
from tidelog.node.origins import Explained, Origin, Source, TopicSettings
from tidelog.node.resource_settings import CLIENT_METRICS, GROUP, GROUP_BOUNDS
from tidelog.node.settings import BROKER, TOPIC
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k32_describe_configs import (
    API,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from tidelog.wire.metadata_records import ResourceKind

_KINDS: Final[Mapping[str, int]] = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
_NAMES: Final[Mapping[int, str]] = {
    Resource.CLIENT_METRICS: "Client metrics subscription",
    Resource.GROUP: "Group",
}

_Rows = list[DescribeConfigsResourceResult]


def describe_configs(call: Call, request: DescribeConfigsRequest) -> object | None:
    return in_parts(call, _described(call, request))


def _described(call: Call, request: DescribeConfigsRequest) -> Parts:
    description = _Description(call, request)
    results: list[DescribeConfigsResult] = []
    turn = Turn()
    for resource in (yield from _merged(request.resources, turn)):
        if turn.is_over():
            yield None
        results.append(description.result(resource))
        turn.take(len(results[-1].configs))
    return DescribeConfigsResponse(results=results)


def _merged(
    resources: Sequence[DescribeConfigsResource], turn: Turn
) -> Parting[list[DescribeConfigsResource]]:
    """Each resource once, however often it stands there: a short request for all that a broker has
    thousands of times would be answered with gigabytes.
    """
    found: dict[tuple[int, str], DescribeConfigsResource] = {}
    for resource in resources:
        if turn.is_over():
            yield None
        first = found.setdefault((resource.resource_type, resource.resource_name), resource)
        if first is not resource and first.configuration_keys:
            if resource.configuration_keys:
                first.configuration_keys += resource.configuration_keys
            else:
                first.configuration_keys = None
    return list(found.values())


class _Description:
    """Answers one request; what topics inherit is worked out once for all of them."""

    def __init__(self, call: Call, request: DescribeConfigsRequest) -> None:
        self._broker = call.broker
        self._layers = call.broker.configs.layers
        self._request = request
        self._inherited = TopicSettings(self._layers)
        self._unlisted = limits.RESOURCES_WITH_SETTINGS_MAX
        """How many more groups and clients may be described: nobody knows which names there are."""
        self._describe: Mapping[int, Callable[[DescribeConfigsResource], _Rows]] = {
            Resource.TOPIC: self._topic,
            Resource.BROKER: self._one_broker,
            Resource.BROKER_LOGGER: self._loggers,
            Resource.CLIENT_METRICS: self._client_metrics,
            Resource.GROUP: self._group,
        }

    def result(self, resource: DescribeConfigsResource) -> DescribeConfigsResult:
        code, reason, rows = ErrorCode.NONE, "", []
        try:
            rows = self._rows(resource)
        except Rejected as refused:
            code, reason = refused.code, refused.detail
        return DescribeConfigsResult(
            error_code=code,
            error_message=reason,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=rows,
        )

    def _rows(self, resource: DescribeConfigsResource) -> _Rows:
        describe = self._describe.get(resource.resource_type)
        if describe is None:
            raise Rejected(
                ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
            )
        return describe(resource)

    def _topic(self, resource: DescribeConfigsResource) -> _Rows:
        fault = fault_of_name(resource.resource_name)
        if fault is not None:
            raise Rejected(ErrorCode.INVALID_TOPIC_EXCEPTION, fault)
        topic = self._broker.image.names.get(resource.resource_name)
        if topic is None:
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        explain, rows = self._inherited.explain, TOPIC.rows
        return [
            self._row(rows[name], explain(name, topic.configs), read_only=False)
            for name in _asked(rows, resource)
        ]

    def _one_broker(self, resource: DescribeConfigsResource) -> _Rows:
        rows = BROKER.all_rows()
        if resource.resource_name == EVERY_BROKER:
            return self._all_brokers(rows, resource)
        check_own_broker(self._broker.me, resource.resource_name, choice=" or empty string")
        return [
            self._row(rows[name], self._layers.explain(name), read_only=name not in DYNAMIC)
            for name in _asked(rows, resource)
        ]

    def _all_brokers(self, rows: Mapping[str, Setting], resource: DescribeConfigsResource) -> _Rows:
        """Only what was changed for all brokers at once."""
        found = []
        for name in _asked(self._layers.cluster, resource):
            said = self._layers.explain(name).origins
            ours = [one for one in said if one.source is Source.DYNAMIC_DEFAULT_BROKER]
            explained = Explained(self._layers.cluster[name], ours)
            found.append(self._row(rows[name], explained, read_only=name not in DYNAMIC))
        return found

    def _loggers(self, resource: DescribeConfigsResource) -> _Rows:
        """What is logged cannot be chosen logger by logger."""
        if not resource.resource_name:
            raise Rejected(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        check_own_broker(self._broker.me, resource.resource_name)
        return []

    def _client_metrics(self, resource: DescribeConfigsResource) -> _Rows:
        """Kafka explains a subscription's defaults by nothing."""
        return self._others(resource, CLIENT_METRICS, Source.CLIENT_METRICS, lambda _: [])

    def _group(self, resource: DescribeConfigsResource) -> _Rows:
        """What a group does not set itself the broker says for all groups."""

        def inherited(name: str) -> Sequence[Origin]:
            bounds = GROUP_BOUNDS.get(name)
            if bounds is None:
                return [Origin(name, GROUP.rows[name].default, Source.DEFAULT)]
            return self._layers.explain(bounds.default).origins

        return self._others(resource, GROUP, Source.GROUP, inherited)

    def _others(
        self,
        resource: DescribeConfigsResource,
        table: Table,
        source: Source,
        inherited: Callable[[str], Sequence[Origin]],
    ) -> _Rows:
        """Any name may be asked for: a group may have settings before it has members."""
        kind, resource_name = ResourceKind(resource.resource_type), resource.resource_name
        if not resource_name:
            raise Rejected(ErrorCode.INVALID_REQUEST, f"{_NAMES[kind]} name must not be empty")
        self._unlisted -= 1
        if self._unlisted < 0:
            most = limits.RESOURCES_WITH_SETTINGS_MAX
            raise Rejected(ErrorCode.INVALID_REQUEST, f"one request may name {most} of these")
        own = self._broker.image.configs_of(kind).get(resource_name, {})
        found = []
        for name in _asked(table.rows, resource):
            row = table.rows[name]
            said = inherited(name)
            if name in own:
                said = [Origin(name, own[name], source), *said]
            value = said[0].value if said else row.default
            found.append(self._row(row, Explained(value, said), read_only=False))
        return found

    def _row(
        self, row: Setting, found: Explained, *, read_only: bool
    ) -> DescribeConfigsResourceResult:
        secret = row.kind == "password"
        request = self._request
        return DescribeConfigsResourceResult(
            name=row.name,
            value=None if secret else found.value,
            read_only=read_only,
            config_source=found.source,
            is_sensitive=secret,
            synonyms=_synonyms(found, secret=secret) if request.include_synonyms else [],
            config_type=_KINDS[row.kind],
            documentation=row.doc if request.include_documentation else None,
        )


def _asked(known: Iterable[str], resource: DescribeConfigsResource) -> list[str]:
    """Names that are asked for and there; of others nothing is said. To ask for none asks for all,
    as with Kafka."""
    keys = resource.configuration_keys
    if not keys:
        return list(known)
    wanted = frozenset(keys)
    return [name for name in known if name in wanted]


def _synonyms(found: Explained, *, secret: bool) -> list[DescribeConfigsSynonym]:
    return [
        DescribeConfigsSynonym(name=name, value=None if secret else value, source=source)
        for name, value, source in found.origins
    ]


ROUTE = Route(API, range(1, 5), describe_configs, "topics, brokers, groups and clients' metrics")
