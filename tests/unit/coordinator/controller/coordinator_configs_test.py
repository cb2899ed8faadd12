"""AlterConfigs and IncrementalAlterConfigs as the controller decides them."""

import gc

import pytest

from harness.machines.controllers import ONE, TWO, Controlled, topic
from tidelog.coordinator.controller import config_changes
from tidelog.coordinator.controller.requests import AlterConfigs, IncrementalAlterConfigs
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.limits import CONFIG_CHANGES_PER_DECISION_MAX
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages import k33_alter_configs as replacing
from tidelog.wire.messages import k44_incremental_alter_configs as altering
from tidelog.wire.metadata_records import ConfigChanged, ResourceKind

TOPIC, BROKER, METRICS, GROUP = 2, 4, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def controlled() -> Controlled:
    controlled = Controlled(ONE, TWO)
    controlled.create(topic("t", configs={"retention.ms": "5", "segment.ms": "6"}))
    return controlled


def entry(name: str, value: str | None, operation: int = SET) -> altering.AlterableConfig:
    return altering.AlterableConfig(name=name, config_operation=operation, value=value)


def on(
    name: str, *entries: altering.AlterableConfig, kind: int = TOPIC
) -> altering.AlterConfigsResource:
    return altering.AlterConfigsResource(
        resource_type=kind, resource_name=name, configs=list(entries)
    )


def alter(
    controlled: Controlled, *resources: altering.AlterConfigsResource, validate_only: bool = False
) -> list[altering.AlterConfigsResourceResponse]:
    message = altering.IncrementalAlterConfigsRequest(
        resources=list(resources), validate_only=validate_only
    )
    reply = controlled.everywhere(IncrementalAlterConfigs(1, message))
    assert isinstance(reply, altering.IncrementalAlterConfigsResponse)
    return reply.responses


def refused(controlled: Controlled, resource: altering.AlterConfigsResource) -> tuple[int, str]:
    before = len(controlled.log)
    (row,) = alter(controlled, resource)
    assert len(controlled.log) == before
    assert row.error_code != ErrorCode.NONE
    return row.error_code, row.error_message or ""


def replace(
    controlled: Controlled, name: str, *, kind: int = TOPIC, **values: str
) -> list[replacing.AlterConfigsResourceResponse]:
    resource = replacing.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            replacing.AlterableConfig(name=key.replace("_", "."), value=value)
            for key, value in values.items()
        ],
    )
    message = replacing.AlterConfigsRequest(resources=[resource], validate_only=False)
    reply = controlled.everywhere(AlterConfigs(2, message))
    assert isinstance(reply, replacing.AlterConfigsResponse)
    return reply.responses


# -- topics -------------------------------------------------------------------------------------


def test_an_entry_is_set_and_another_taken_away(controlled: Controlled) -> None:
    (row,) = alter(
        controlled, on("t", entry("retention.ms", "7"), entry("segment.ms", None, DELETE))
    )
    assert (row.error_code, row.error_message) == (0, None)
    assert (row.resource_type, row.resource_name) == (TOPIC, "t")
    assert controlled.image.names["t"].configs == {"retention.ms": "7"}
    assert controlled.log[-2:] == [
        ConfigChanged(ResourceKind.TOPIC, "t", "retention.ms", "7"),
        ConfigChanged(ResourceKind.TOPIC, "t", "segment.ms", None),
    ]


def test_what_is_so_already_is_not_written_again(controlled: Controlled) -> None:
    before = len(controlled.log)
    (row,) = alter(controlled, on("t", entry("retention.ms", "5"), entry("flush.ms", None, DELETE)))
    assert row.error_code == 0
    assert len(controlled.log) == before


def test_a_replacement_takes_away_what_it_does_not_name(controlled: Controlled) -> None:
    (row,) = replace(controlled, "t", segment_ms="9")
    assert row.error_code == 0
    assert controlled.image.names["t"].configs == {"segment.ms": "9"}


def test_elements_are_appended_to_a_list_and_taken_from_it(controlled: Controlled) -> None:
    configs = controlled.image.names["t"].configs
    alter(controlled, on("t", entry("cleanup.policy", "compact", APPEND)))
    assert configs["cleanup.policy"] == "delete,compact"
    alter(controlled, on("t", entry("cleanup.policy", "compact", APPEND)))
    assert configs["cleanup.policy"] == "delete,compact"
    alter(controlled, on("t", entry("cleanup.policy", "delete", SUBTRACT)))
    assert configs["cleanup.policy"] == "compact"


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_a_list_has_elements(controlled: Controlled, operation: int) -> None:
    code, detail = refused(controlled, on("t", entry("retention.ms", "1", operation)))
    assert code == ErrorCode.INVALID_CONFIG
    assert "its type is not LIST" in detail


@pytest.mark.parametrize(
    ("bad", "code", "detail"),
    [
        (entry("retention.m", "1"), 40, "did you mean 'retention.ms'?"),
        (entry("retention.ms", "soon"), 40, "retention.ms='soon': must be a whole number"),
        (entry("cleanup.policy", "x", APPEND), 40, "cleanup.policy='delete,x'"),
        (entry("retention.ms", None), 42, "Null value not supported for : retention.ms"),
        (entry("retention.ms", None, APPEND), 42, "Null value not supported"),
        (entry("retention.ms", "1", 9), 42, "Unknown operation type 9"),
        (entry("remote.storage.enable", "true"), 40, "Tiered Storage"),
    ],
    ids=lambda value: value.name if isinstance(value, altering.AlterableConfig) else None,
)
def test_an_entry_that_may_not_be_is_refused(
    controlled: Controlled, bad: altering.AlterableConfig, code: int, detail: str
) -> None:
    told, why = refused(controlled, on("t", bad, entry("flush.ms", "1")))
    assert told == code
    assert detail in why
    assert "flush.ms" not in controlled.image.names["t"].configs


def test_settings_that_contradict_each_other_are_refused(controlled: Controlled) -> None:
    alter(controlled, on("t", entry("max.compaction.lag.ms", "10")))
    code, detail = refused(controlled, on("t", entry("min.compaction.lag.ms", "11")))
    assert code == ErrorCode.INVALID_CONFIG
    assert detail == (
        "conflict topic config setting min.compaction.lag.ms (11) > max.compaction.lag.ms (10)"
    )


def test_a_flush_policy_that_counts_on_a_limit_nobody_set_is_refused(
    controlled: Controlled,
) -> None:
    said = "flush.policy counts on flush.messages, which sets no limit; set it too"
    policy, limit = entry("flush.policy", "messages+bytes"), entry("flush.messages", "10")
    assert refused(controlled, on("t", policy)) == (ErrorCode.INVALID_CONFIG, said)
    alter(controlled, on("t", policy, limit))
    alter(controlled, on("t", entry("retention.ms", "7")))
    interval = entry("flush.policy", "interval")
    code, detail = refused(controlled, on("", interval, kind=BROKER))
    assert code == ErrorCode.INVALID_REQUEST
    assert "flush.policy counts on flush.ms" in detail
    alter(controlled, on("", interval, entry("log.flush.interval.ms", "5"), kind=BROKER))
    assert controlled.image.broker_configs[""]["flush.policy"] == "interval"


def test_a_contradiction_with_what_the_broker_says_is_refused() -> None:
    given = {"log.cleaner.max.compaction.lag.ms": "10"}
    controlled = Controlled(ONE, settings=ControllerSettings(broker=given))
    (made,) = controlled.create(topic("u", configs={"min.compaction.lag.ms": "11"}))
    assert made.error_code == ErrorCode.INVALID_CONFIG
    controlled.create(topic("u"))
    code, _ = refused(controlled, on("u", entry("min.compaction.lag.ms", "11")))
    assert code == ErrorCode.INVALID_CONFIG


def test_one_resource_fails_without_its_neighbours(controlled: Controlled) -> None:
    rows = alter(
        controlled,
        on("no-such", entry("retention.ms", "7")),
        on("t", entry("retention.ms", "8")),
        on("", entry("retention.ms", "7")),
        on("..", entry("retention.ms", "7")),
        on("x", kind=99),
    )
    assert [row.error_code for row in rows] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert controlled.image.names["t"].configs["retention.ms"] == "8"


def test_a_refused_change_leaves_nothing_to_the_collector_of_garbage(
    controlled: Controlled,
) -> None:
    """It would keep the whole request, of up to 8 MiB, until a collection that comes rarely."""
    resource = on("t", entry("retention.ms", "x"))
    gc.collect()
    gc.disable()
    try:
        refused(controlled, resource)
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_a_resource_or_a_key_named_twice_is_not_changed(controlled: Controlled) -> None:
    twice = on("t", entry("retention.ms", "7"))
    rows = alter(controlled, twice, twice)
    assert [row.error_code for row in rows] == [ErrorCode.INVALID_REQUEST] * 2
    code, detail = refused(controlled, on("t", entry("flush.ms", "1"), entry("flush.ms", "2")))
    assert (code, detail) == (42, "Error due to duplicate config keys")
    assert controlled.image.names["t"].configs["retention.ms"] == "5"


def test_a_trial_changes_nothing(controlled: Controlled) -> None:
    before = len(controlled.log)
    good, bad = alter(
        controlled,
        on("t", entry("retention.ms", "7")),
        on("u", entry("retention.ms", "7")),
        validate_only=True,
    )
    assert (good.error_code, bad.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(controlled.log) == before


def test_a_request_of_too_many_changes_is_refused_whole(controlled: Controlled) -> None:
    many = [entry(f"k{n}", "1") for n in range(CONFIG_CHANGES_PER_DECISION_MAX + 1)]
    with pytest.raises(Rejected) as whole:
        alter(controlled, on("t", *many))
    assert whole.value.code is ErrorCode.INVALID_REQUEST


# -- brokers ------------------------------------------------------------------------------------


def test_a_broker_and_all_brokers_have_settings_of_their_own(controlled: Controlled) -> None:
    alter(
        controlled,
        on("1", entry("log.retention.ms", "1"), kind=BROKER),
        on("", entry("log.retention.ms", "2"), kind=BROKER),
    )
    assert controlled.image.broker_configs == {
        "1": {"log.retention.ms": "1"},
        "": {"log.retention.ms": "2"},
    }
    replace(controlled, "1", kind=BROKER)
    assert controlled.image.broker_configs == {"": {"log.retention.ms": "2"}}


def test_what_is_changed_for_all_brokers_holds_for_new_topics(controlled: Controlled) -> None:
    alter(controlled, on("", entry("log.retention.ms", "2"), kind=BROKER))
    (made,) = controlled.create(topic("u"))
    row = next(one for one in made.configs or () if one.name == "retention.ms")
    assert (row.value, row.config_source) == ("2", 3)


@pytest.mark.parametrize(
    ("broker", "bad", "code", "detail"),
    [
        ("1", entry("num.partitions", "2"), 42, "dynamically: [num.partitions]"),
        ("", entry("listeners", "PLAINTEXT://:1"), 42, "broker id must be specified: [listeners]"),
        ("1", entry("log.retention.ms", "soon"), 42, "log.retention.ms='soon'"),
        ("1", entry("log.retention.m", "1"), 40, "did you mean 'log.retention.ms'?"),
        ("1", entry("max.connections", "1", APPEND), 40, "its type is not LIST"),
        ("7", entry("log.retention.ms", "1"), 102, "No broker with id 7 found."),
        ("one", entry("log.retention.ms", "1"), 42, "Unable to parse broker name"),
        ("01", entry("log.retention.ms", "1"), 42, "Unable to parse broker name"),
    ],
)
def test_a_brokers_entry_that_may_not_be_is_refused(
    controlled: Controlled, broker: str, bad: altering.AlterableConfig, code: int, detail: str
) -> None:
    told, why = refused(controlled, on(broker, bad, kind=BROKER))
    assert told == code
    assert detail in why


# -- groups, and subscriptions to clients' metrics ------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [(GROUP, "consumer.session.timeout.ms", "46000"), (METRICS, "match", "client_id=a.*")],
)
def test_a_group_and_a_subscription_have_settings_of_their_own(
    controlled: Controlled, kind: int, name: str, value: str
) -> None:
    (row,) = alter(controlled, on("x", entry(name, value), kind=kind))
    assert row.error_code == ErrorCode.NONE
    assert controlled.image.configs_of(ResourceKind(kind)) == {"x": {name: value}}
    alter(controlled, on("x", entry(name, None, DELETE), kind=kind))
    assert controlled.image.configs_of(ResourceKind(kind)) == {}


@pytest.mark.parametrize(
    ("kind", "resource", "name", "value", "code", "reason"),
    [
        (GROUP, "", "share.session.timeout.ms", "46000", 42, "Default group resources"),
        (GROUP, "g", "nope", "1", 40, "Unknown group config name: nope"),
        (GROUP, "g", "consumer.session.timeout.ms", "x", 40, "must be a whole number"),
        (GROUP, "g", "consumer.session.timeout.ms", "5999", 40, "greater than or equal to group."),
        (GROUP, "g", "consumer.session.timeout.ms", "60001", 40, "less than or equal to group."),
        (GROUP, "g", "streams.num.standby.replicas", "3", 40, "less than or equal to group."),
        (METRICS, "", "interval.ms", "200", 42, "can't be empty"),
        (METRICS, "m", "nope", "1", 42, "Unknown client metrics configuration: nope"),
        (METRICS, "m", "interval.ms", "99", 42, "from 100 to 3600000"),
        (METRICS, "m", "match", "shoe_size=4", 42, "a list of NAME=PATTERN"),
    ],
)
def test_a_setting_of_theirs_that_may_not_be_is_refused(
    controlled: Controlled,
    *,
    kind: int,
    resource: str,
    name: str,
    value: str,
    code: int,
    reason: str,
) -> None:
    found, said = refused(controlled, on(resource, entry(name, value), kind=kind))
    assert found == code
    assert reason in said


def test_what_a_group_s_settings_may_be_follows_the_brokers(controlled: Controlled) -> None:
    wanted = on("g", entry("share.delivery.count.limit", "11"), kind=GROUP)
    assert refused(controlled, wanted)[0] == ErrorCode.INVALID_CONFIG
    more = {"group.share.max.delivery.count.limit": "12"}
    (row,) = alter(Controlled(ONE, settings=ControllerSettings.of(more)), wanted)
    assert row.error_code == ErrorCode.NONE


def test_so_many_groups_have_settings_and_no_more(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config_changes, "RESOURCES_WITH_SETTINGS_MAX", 2)
    wanted = entry("consumer.session.timeout.ms", "46000")
    rows = alter(controlled, *(on(name, wanted, kind=GROUP) for name in ("a", "b", "c")))
    assert [row.error_code for row in rows] == [0, 0, 42]
    (row,) = alter(controlled, on("a", entry("share.session.timeout.ms", "50000"), kind=GROUP))
    assert row.error_code == ErrorCode.NONE
