"""DescribeConfigs, and what a broker settles itself of requests that change settings."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import FakeClient, HandlerBench
from tidelog.node.resource_settings import GROUP
from tidelog.node.settings import TOPIC
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response, encode_response, joined
from tidelog.wire.messages import (
    k32_describe_configs,
    k33_alter_configs,
    k37_create_partitions,
    k44_incremental_alter_configs,
    k74_list_config_resources,
)
from tidelog.wire.metadata_records import ConfigChanged, ResourceKind

TOPICS, BROKERS, LOGGERS, METRICS, GROUPS = 2, 4, 8, 16, 32


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path, message_max_bytes="2000", sasl_jaas_config="hush")


def describe(
    bench: HandlerBench,
    kind: int,
    name: str,
    *keys: str,
    version: int = 4,
    synonyms: bool = True,
    docs: bool = False,
) -> Any:
    request = k32_describe_configs.DescribeConfigsRequest(
        resources=[
            k32_describe_configs.DescribeConfigsResource(
                resource_type=kind,
                resource_name=name,
                configuration_keys=list(keys) or None,
            )
        ],
        include_synonyms=synonyms,
        include_documentation=docs,
    )
    (result,) = bench.ask(k32_describe_configs.API, version, request).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def one(result: Any) -> Any:
    assert result.error_code == ErrorCode.NONE
    (row,) = result.configs
    return row


def said(row: Any) -> list[tuple[str, str | None, int]]:
    return [(synonym.name, synonym.value, synonym.source) for synonym in row.synonyms]


# -- describing ---------------------------------------------------------------------------------


def test_a_topic_has_every_setting_its_own_or_not(bench: HandlerBench) -> None:
    bench.topic("t", retention_ms="5")
    result = describe(bench, TOPICS, "t")
    assert [row.name for row in result.configs] == list(TOPIC.rows)
    assert [row.name for row in result.configs if row.config_source == 1] == ["retention.ms"]
    assert not any(row.read_only or row.is_sensitive for row in result.configs)


def test_to_ask_for_no_setting_asks_for_all(bench: HandlerBench) -> None:
    bench.topic("t")
    resource = k32_describe_configs.DescribeConfigsResource(
        resource_type=TOPICS, resource_name="t", configuration_keys=[]
    )
    request = k32_describe_configs.DescribeConfigsRequest(resources=[resource])
    (result,) = bench.ask(k32_describe_configs.API, 4, request).results
    assert len(result.configs) == len(TOPIC.rows)


def test_synonyms_come_the_strongest_first(bench: HandlerBench) -> None:
    bench.topic("t", max_message_bytes="1000")
    row = one(describe(bench, TOPICS, "t", "max.message.bytes", "no.such"))
    assert (row.value, row.config_source, row.config_type) == ("1000", 1, 3)
    assert said(row) == [
        ("max.message.bytes", "1000", 1),
        ("message.max.bytes", "2000", 4),
        ("message.max.bytes", "1048588", 5),
    ]
    assert one(describe(bench, TOPICS, "t", "max.message.bytes", synonyms=False)).synonyms == []


def test_documentation_comes_where_it_is_asked_for(bench: HandlerBench) -> None:
    bench.topic("t")
    assert one(describe(bench, TOPICS, "t", "retention.ms")).documentation is None
    row = one(describe(bench, TOPICS, "t", "remote.storage.enable", docs=True))
    assert "no effect" in row.documentation
    assert one(describe(bench, TOPICS, "t", "retention.ms", version=1)).name == "retention.ms"


@pytest.mark.parametrize(
    ("kind", "name", "code", "reason"),
    [
        (TOPICS, "none", 3, ""),
        (TOPICS, "", 17, "empty"),
        (BROKERS, "7", 42, "expected 0 or empty string, but received 7"),
        (BROKERS, "x", 42, "must be an integer"),
        (LOGGERS, "", 42, "Broker id must not be empty"),
        (LOGGERS, "7", 42, "expected 0, but received 7"),
        (METRICS, "", 42, "Client metrics subscription name must not be empty"),
        (GROUPS, "", 42, "Group name must not be empty"),
        (99, "x", 42, "Unsupported resource type: 99"),
    ],
)
def test_what_cannot_be_described(
    bench: HandlerBench, kind: int, name: str, code: int, reason: str
) -> None:
    result = describe(bench, kind, name)
    assert (result.error_code, result.configs) == (code, [])
    assert reason in result.error_message


def test_loggers_have_no_settings_here(bench: HandlerBench) -> None:
    result = describe(bench, LOGGERS, "0")
    assert (result.error_code, result.configs) == (0, [])


def test_a_group_has_what_it_sets_itself_and_else_what_the_brokers_say(bench: HandlerBench) -> None:
    bench.replay(
        ConfigChanged(ResourceKind.GROUP, "g", "consumer.session.timeout.ms", "50000"),
        ConfigChanged(ResourceKind.BROKER, "", "group.consumer.heartbeat.interval.ms", "6000"),
    )
    rows = {row.name: row for row in describe(bench, GROUPS, "g", docs=True).configs}
    assert rows.keys() == GROUP.rows.keys()
    assert all(
        row.name.startswith("consumer.") or "there are no" in row.documentation
        for row in rows.values()
    )
    assert said(rows["consumer.session.timeout.ms"]) == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    heartbeat = rows["consumer.heartbeat.interval.ms"]
    assert (heartbeat.value, heartbeat.config_source, heartbeat.read_only) == ("6000", 3, False)
    assert said(rows["share.auto.offset.reset"]) == [("share.auto.offset.reset", "latest", 5)]
    other = one(describe(bench, GROUPS, "other", "consumer.session.timeout.ms"))
    assert (other.value, other.config_source) == ("45000", 5)


def test_a_subscription_to_metrics_has_settings(bench: HandlerBench) -> None:
    bench.replay(ConfigChanged(ResourceKind.CLIENT_METRICS, "m", "interval.ms", "200"))
    rows = {
        row.name: (row.value, row.config_source) for row in describe(bench, METRICS, "m").configs
    }
    assert rows == {"interval.ms": ("200", 7), "match": ("", 5), "metrics": ("", 5)}


def test_a_broker_tells_all_its_settings_and_which_may_change(bench: HandlerBench) -> None:
    result = describe(bench, BROKERS, "0")
    rows = {row.name: row for row in result.configs}
    assert len(rows) >= 340
    assert (rows["num.partitions"].read_only, rows["message.max.bytes"].read_only) == (True, False)
    assert (rows["message.max.bytes"].value, rows["message.max.bytes"].config_source) == ("2000", 4)
    assert (rows["log.retention.ms"].value, rows["log.retention.hours"].value) == (None, "168")


def test_a_secret_is_told_to_nobody(bench: HandlerBench) -> None:
    row = one(describe(bench, BROKERS, "0", "sasl.jaas.config"))
    assert (row.is_sensitive, row.value, row.config_type) == (True, None, 9)
    assert said(row) == [("sasl.jaas.config", None, 4)]


def test_changes_at_run_time_win_over_what_a_broker_was_started_with(bench: HandlerBench) -> None:
    bench.topic("t")
    bench.replay(
        ConfigChanged(ResourceKind.BROKER, "", "message.max.bytes", "3000"),
        ConfigChanged(ResourceKind.BROKER, "0", "message.max.bytes", "4000"),
        ConfigChanged(ResourceKind.BROKER, "7", "message.max.bytes", "5000"),
    )
    assert one(describe(bench, TOPICS, "t", "max.message.bytes")).value == "4000"
    row = one(describe(bench, BROKERS, ""))
    assert (row.name, row.value, row.config_source) == ("message.max.bytes", "3000", 3)
    assert said(row) == [("message.max.bytes", "3000", 3)]
    chain = said(one(describe(bench, BROKERS, "0", "message.max.bytes")))
    assert [source for _, _, source in chain] == [2, 3, 4, 5]


def test_a_change_of_the_brokers_settings_reaches_open_logs_and_goes_again(
    bench: HandlerBench,
) -> None:
    bench.topic("t")
    bench.topic("u", max_message_bytes="7")
    (of_t,) = [one for one in bench.broker.replicas if one.topic == "t"]
    (of_u,) = [one for one in bench.broker.replicas if one.topic == "u"]
    assert of_t.rules.message_bytes_max == 2000
    bench.replay(ConfigChanged(ResourceKind.BROKER, "", "message.max.bytes", "3000"))
    assert (of_t.rules.message_bytes_max, of_u.rules.message_bytes_max) == (3000, 7)
    assert bench.broker.settings["message.max.bytes"] == 3000
    bench.replay(ConfigChanged(ResourceKind.BROKER, "", "message.max.bytes", None))
    assert of_t.rules.message_bytes_max == 2000
    assert bench.broker.settings["message.max.bytes"] == 2000


def test_a_setting_that_only_a_change_gave_is_gone_with_it(bench: HandlerBench) -> None:
    bench.topic("t")
    bench.replay(ConfigChanged(ResourceKind.BROKER, "0", "log.retention.ms", "5"))
    (replica,) = bench.broker.replicas
    assert replica.log.settings.retention_ms == 5
    bench.replay(ConfigChanged(ResourceKind.BROKER, "0", "log.retention.ms", None))
    assert replica.log.settings.retention_ms == 604_800_000
    assert bench.broker.settings["log.retention.ms"] is None


# -- changing -----------------------------------------------------------------------------------


def resource(kind: int, name: str, *keys: str) -> Any:
    return k44_incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            k44_incremental_alter_configs.AlterableConfig(name=key, config_operation=0, value="1")
            for key in keys
        ],
    )


def test_what_concerns_another_broker_is_refused_here_and_the_rest_decided(
    bench: HandlerBench,
) -> None:
    api = k44_incremental_alter_configs.API
    client = FakeClient()
    request = k44_incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            resource(TOPICS, "a"),
            resource(BROKERS, "7"),
            resource(LOGGERS, "0", "root"),
            resource(BROKERS, "0"),
            resource(METRICS, "m"),
            resource(LOGGERS, "0"),
        ]
    )
    bench.begin(client, api, 1, request)
    assert client.frames() == []
    ((key, _),) = bench.link.forwarded
    assert key == api.key
    decided = k44_incremental_alter_configs.IncrementalAlterConfigsResponse(
        responses=[
            k44_incremental_alter_configs.AlterConfigsResourceResponse(
                error_code=code, error_message=None, resource_type=kind, resource_name=name
            )
            for code, kind, name in ((3, TOPICS, "a"), (0, BROKERS, "0"), (0, METRICS, "m"))
        ]
    )
    bench.link.done[0](joined(encode_response(api, 1, 1, decided))[4:])
    (frame,) = client.frames()
    rows = decode_response(api, 1, memoryview(frame))[1].responses
    assert [(row.resource_type, row.resource_name, row.error_code) for row in rows] == [
        (TOPICS, "a", 3),
        (BROKERS, "7", 42),
        (LOGGERS, "0", 40),
        (BROKERS, "0", 0),
        (METRICS, "m", 0),
        (LOGGERS, "0", 0),
    ]


def test_what_is_all_refused_here_asks_nobody(bench: HandlerBench) -> None:
    request = k33_alter_configs.AlterConfigsRequest(
        resources=[
            k33_alter_configs.AlterConfigsResource(
                resource_type=kind, resource_name="0", configs=[]
            )
            for kind in (LOGGERS, 99)
        ]
    )
    rows = bench.ask(k33_alter_configs.API, 2, request).responses
    assert [row.error_code for row in rows] == [42, 42]
    assert bench.link.forwarded == []


@pytest.mark.parametrize("version", [0, 1])
def test_a_coordinator_that_is_not_there_is_told_for_every_resource(
    bench: HandlerBench, version: int
) -> None:
    api = k44_incremental_alter_configs.API
    client = FakeClient()
    request = k44_incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource(TOPICS, "a"), resource(TOPICS, "b")]
    )
    bench.begin(client, api, version, request)
    bench.link.done[0](ErrorCode.REQUEST_TIMED_OUT)
    (frame,) = client.frames()
    rows = decode_response(api, version, memoryview(frame))[1].responses
    assert [row.error_code for row in rows] == [7, 7]


def test_new_partitions_are_for_the_coordinator_to_decide(bench: HandlerBench) -> None:
    api = k37_create_partitions.API
    client = FakeClient()
    asked = k37_create_partitions.CreatePartitionsTopic(name="t", count=3, assignments=None)
    request = k37_create_partitions.CreatePartitionsRequest(topics=[asked], timeout_ms=9)
    bench.begin(client, api, 3, request)
    assert [key for key, _ in bench.link.forwarded] == [37]
    bench.link.done[0](ErrorCode.NOT_CONTROLLER)
    (frame,) = client.frames()
    (row,) = decode_response(api, 3, memoryview(frame))[1].results
    assert (row.name, row.error_code) == ("t", 41)


# -- listing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "kinds", "found"),
    [
        (1, [TOPICS], [("a", 2), ("b", 2)]),
        (1, [BROKERS, TOPICS], [("0", 4), ("a", 2), ("b", 2)]),
        (0, [], [("m", 16)]),
        (1, [GROUPS, METRICS], [("g", 32), ("m", 16)]),
        (1, [], [("a", 2), ("b", 2), ("0", 4), ("0", 8), ("m", 16), ("g", 32)]),
    ],
)
def test_resources_are_listed_by_type(
    bench: HandlerBench, version: int, kinds: list[int], found: list[tuple[str, int]]
) -> None:
    bench.topic("b")
    bench.topic("a")
    bench.replay(
        ConfigChanged(ResourceKind.GROUP, "g", "consumer.session.timeout.ms", "50000"),
        ConfigChanged(ResourceKind.GROUP, "gone", "consumer.session.timeout.ms", "50000"),
        ConfigChanged(ResourceKind.GROUP, "gone", "consumer.session.timeout.ms", None),
        ConfigChanged(ResourceKind.CLIENT_METRICS, "m", "interval.ms", "200"),
    )
    request = k74_list_config_resources.ListConfigResourcesRequest(resource_types=kinds)
    answer = bench.ask(k74_list_config_resources.API, version, request)
    assert answer.error_code == 0
    assert [(row.resource_name, row.resource_type) for row in answer.config_resources] == found


def test_a_type_nobody_knows_is_not_listed(bench: HandlerBench) -> None:
    request = k74_list_config_resources.ListConfigResourcesRequest(resource_types=[TOPICS, 99])
    answer = bench.ask(k74_list_config_resources.API, 1, request)
    assert (answer.error_code, answer.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])
