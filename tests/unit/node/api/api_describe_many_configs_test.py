"""DescribeConfigs of many resources, or of one many times: bounded answers, in parts."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import FakeClient, HandlerBench, turns
from tidelog.kernel import limits
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k32_describe_configs

TOPIC, BROKER, GROUP = 2, 4, 32
VERSION = 4


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    bench = HandlerBench(tmp_path)
    bench.topic("t")
    return bench


def resource(kind: int, name: str, *keys: str) -> k32_describe_configs.DescribeConfigsResource:
    return k32_describe_configs.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=list(keys) or None
    )


def begin(
    bench: HandlerBench, resources: list[k32_describe_configs.DescribeConfigsResource]
) -> FakeClient:
    client = FakeClient()
    request = k32_describe_configs.DescribeConfigsRequest(resources=resources)
    bench.begin(client, k32_describe_configs.API, VERSION, request)
    return client


def results_of(client: FakeClient) -> list[Any]:
    (frame,) = client.frames()
    answer = decode_response(k32_describe_configs.API, VERSION, memoryview(frame))[1]
    found: list[Any] = answer.results
    return found


def test_a_resource_that_stands_there_many_times_is_described_once(bench: HandlerBench) -> None:
    client = begin(bench, [resource(BROKER, "0")] * 50_000 + [resource(TOPIC, "t")])
    broker, topic = results_of(client)
    assert (broker.resource_type, topic.resource_type) == (BROKER, TOPIC)


@pytest.mark.parametrize(
    ("second", "names"),
    [
        (["retention.bytes"], {"retention.ms", "retention.bytes"}),
        (["retention.ms"], {"retention.ms"}),
    ],
)
def test_all_that_is_asked_of_a_resource_is_told(
    bench: HandlerBench, second: list[str], names: set[str]
) -> None:
    asked = [resource(TOPIC, "t", "retention.ms"), resource(TOPIC, "t", *second)]
    (row,) = results_of(begin(bench, asked))
    assert {config.name for config in row.configs} == names


def test_who_asks_for_everything_once_is_told_everything(bench: HandlerBench) -> None:
    asked = [resource(TOPIC, "t", "retention.ms"), resource(TOPIC, "t")]
    (row,) = results_of(begin(bench, [*asked, asked[0]]))
    (alone,) = results_of(begin(bench, asked[1:]))
    assert row == alone


def test_others_have_their_turn_between_many_topics(bench: HandlerBench) -> None:
    names = [f"t{at}" for at in range(100)]
    for name in names:
        bench.topic(name)
    bench.aside = []
    client = begin(bench, [resource(TOPIC, name) for name in names])
    assert turns(bench) > 3
    assert [row.resource_name for row in results_of(client)] == names


def test_only_so_many_groups_that_may_not_be_there_are_described(bench: HandlerBench) -> None:
    groups = limits.RESOURCES_WITH_SETTINGS_MAX + 5
    rows = results_of(begin(bench, [resource(GROUP, str(at), "x") for at in range(groups)]))
    codes = [row.error_code for row in rows]
    assert codes == [ErrorCode.NONE] * (groups - 5) + [ErrorCode.INVALID_REQUEST] * 5
