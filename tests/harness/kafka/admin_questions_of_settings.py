"""What an administrator may ask of settings, as requests: of us and of Apache Kafka alike."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from harness.clients.raw_socket import RawClient
from tidelog.wire.messages import (
    k32_describe_configs,
    k44_incremental_alter_configs,
    k74_list_config_resources,
)
from tidelog.wire.schema import ApiSchema

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


class Question(NamedTuple):
    """One request, and what of its answer must be the same."""

    title: str
    api: ApiSchema[Any, Any]
    version: int
    request: object
    facts: Callable[[Any], object]

    def ask(self, client: RawClient) -> object:
        return self.facts(client.ask(self.api, self.version, self.request))


def questions_of_settings() -> Iterator[Question]:
    """Of topics `a` and `c`, which are there."""
    yield from _described()
    yield from _listed()
    yield from _changed()
    yield from _described_after_changes()


def _describe(title: str, kind: int, name: str, facts: Callable[[Any], object]) -> Question:
    resource = k32_describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = k32_describe_configs.DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=False
    )
    return Question(title, k32_describe_configs.API, 4, request, facts)


def _codes_of_results(answer: Any) -> object:
    return [(row.error_code, row.resource_type, row.resource_name) for row in answer.results]


def _settings(answer: Any) -> object:
    return sorted(
        (
            row.name,
            row.value,
            row.read_only,
            row.config_source,
            row.is_sensitive,
            row.config_type,
            [(one.name, one.value, one.source) for one in row.synonyms],
        )
        for result in answer.results
        for row in result.configs
    )


def _described() -> Iterator[Question]:
    for kind, name in (
        *((TOPIC, name) for name in ("a", "missing", "", "bad@name")),
        *((BROKER, name) for name in ("0", "1", "", "x")),
        *((LOGGER, name) for name in ("0", "1", "")),
        *((METRICS, name) for name in ("m", "")),
        *((GROUP, name) for name in ("g", "")),
        *((kind, "x") for kind in (0, 7, 64)),
    ):
        yield _describe(f"describe {kind} {name!r}", kind, name, _codes_of_results)
    yield _describe("settings of a topic", TOPIC, "c", _settings)
    yield _describe("settings of a group", GROUP, "g", _settings)
    yield _describe("settings of a subscription", METRICS, "m", _settings)


def _listed() -> Iterator[Question]:
    for kinds in ([], [TOPIC], [BROKER], [LOGGER], [METRICS], [GROUP], [TOPIC, BROKER], [99]):
        yield _list(f"list {kinds}", kinds)


def _list(title: str, kinds: list[int]) -> Question:
    request = k74_list_config_resources.ListConfigResourcesRequest(resource_types=kinds)

    def facts(answer: Any) -> object:
        rows = answer.config_resources
        return answer.error_code, sorted((row.resource_type, row.resource_name) for row in rows)

    return Question(title, k74_list_config_resources.API, 1, request, facts)


CHANGES: list[tuple[int, str, list[tuple[str, int, str | None]]]] = [
    (TOPIC, "a", [("retention.ms", SET, "7000000")]),
    (TOPIC, "a", [("retention.ms", SET, "x")]),
    (TOPIC, "a", [("retention.ms", SET, None)]),
    (TOPIC, "a", [("retention.ms", APPEND, "1")]),
    (TOPIC, "a", [("retention.ms", SET, "1"), ("retention.ms", SET, "2")]),
    (TOPIC, "a", [("no.such.thing", SET, "x")]),
    (TOPIC, "a", [("cleanup.policy", APPEND, "compact")]),
    (TOPIC, "a", [("cleanup.policy", SUBTRACT, "compact")]),
    (TOPIC, "a", [("cleanup.policy", SUBTRACT, "delete")]),
    (TOPIC, "a", [("cleanup.policy", DELETE, None)]),
    (TOPIC, "a", [("segment.bytes", SET, "10")]),
    (TOPIC, "a", [("min.compaction.lag.ms", SET, "10"), ("max.compaction.lag.ms", SET, "5")]),
    (TOPIC, "a", [("remote.storage.enable", SET, "true")]),
    (TOPIC, "missing", [("retention.ms", SET, "7")]),
    (TOPIC, "", [("retention.ms", SET, "7")]),
    (BROKER, "0", [("log.retention.ms", SET, "100000000")]),
    (BROKER, "", [("log.retention.ms", SET, "200000000")]),
    (BROKER, "1", [("log.retention.ms", SET, "1")]),
    (BROKER, "x", [("log.retention.ms", SET, "1")]),
    (BROKER, "0", [("node.id", SET, "4")]),
    (BROKER, "0", [("num.io.threads", SET, "0")]),
    (BROKER, "0", [("log.retention.ms", SET, "x")]),
    (BROKER, "", [("ssl.keystore.location", SET, "x")]),
    (LOGGER, "0", [("no.such.logger", SET, "DEBUG")]),
    (LOGGER, "1", [("root", SET, "DEBUG")]),
    (METRICS, "m", [("interval.ms", SET, "100"), ("match", SET, "client_id=a.*")]),
    (METRICS, "m", [("interval.ms", SET, "5")]),
    (METRICS, "m", [("no.such.thing", SET, "5")]),
    (METRICS, "", [("interval.ms", SET, "5")]),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "46000")]),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "1")]),
    (GROUP, "g", [("consumer.session.timeout.ms", SET, "60001")]),
    (GROUP, "g", [("share.delivery.count.limit", SET, "11")]),
    (GROUP, "g", [("streams.num.standby.replicas", SET, "3")]),
    (GROUP, "g", [("no.such.thing", SET, "1")]),
    (GROUP, "", [("consumer.session.timeout.ms", SET, "46000")]),
    (99, "x", [("x", SET, "1")]),
]


def _changed() -> Iterator[Question]:
    for kind, name, entries in CHANGES:
        request = k44_incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                k44_incremental_alter_configs.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        k44_incremental_alter_configs.AlterableConfig(
                            name=key, config_operation=operation, value=value
                        )
                        for key, operation, value in entries
                    ],
                )
            ],
            validate_only=False,
        )
        yield Question(
            f"change {kind} {name!r} {entries}",
            k44_incremental_alter_configs.API,
            1,
            request,
            lambda answer: [(row.error_code, row.resource_type) for row in answer.responses],
        )


def _described_after_changes() -> Iterator[Question]:
    for title, kind, name in (
        ("topic", TOPIC, "a"),
        ("group", GROUP, "g"),
        ("metrics", METRICS, "m"),
    ):
        yield _describe(f"settings of a changed {title}", kind, name, _settings)
    yield _describe("settings of all brokers", BROKER, "", _settings)
    yield _list("list what has settings", [METRICS, GROUP])
