"""`tidelog config` and `tidelog topic alter` as a person and a script see them."""

from collections.abc import Iterator

import pytest

from harness.processes.cluster import Cluster
from harness.processes.golden import Golden
from harness.processes.spoken import script

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def quay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose topics and settings are all of this file's making."""
    settings = {"log.retention.hours": "1", "log.preallocate": "true"}
    with Cluster(tmp_path_factory.mktemp("quay"), settings=settings) as cluster:
        yield cluster


def test_settings_of_a_topic_from_their_setting_to_their_end(quay: Cluster, golden: Golden) -> None:
    text = script(
        quay,
        "topic create orders -c retention.ms=60000",
        "config describe topic orders --changed",
        "config describe topic orders --json retention.ms segment.bytes",
        "config describe topics orders remote.storage.enable --docs",
        "config set topic orders cleanup.policy+=compact segment.ms=5000",
        "config set topic orders cleanup.policy-=delete --json",
        "config set topic orders retention.bytes=5 --dry-run",
        "config set topic orders min.insync.replicas=2",
        "config lint",
        "config lint --json",
        "config unset topic orders retention.ms min.insync.replicas",
        "config unset topic orders segment.ms --json",
        "config describe topic orders --changed",
        "config lint",
        "config lint --json",
    )
    golden("cli_config_topic", text)


def test_settings_of_brokers(quay: Cluster, golden: Golden) -> None:
    text = script(
        quay,
        "config describe broker 0 log.retention.hours log.retention.ms num.partitions",
        "config set broker 0 log.retention.ms=7200000",
        "config set broker all log.retention.ms=3600000 message.max.bytes=2000000",
        "config describe broker all",
        "config describe broker 0 log.retention.ms message.max.bytes --json",
        "config unset broker 0 log.retention.ms",
        "config unset broker all log.retention.ms message.max.bytes",
        "config describe broker all",
    )
    golden("cli_config_broker", text)


def test_settings_of_groups(quay: Cluster, golden: Golden) -> None:
    text = script(
        quay,
        "config describe groups readers consumer.session.timeout.ms --json",
        "config set group readers consumer.session.timeout.ms=50000",
        "config describe group readers --changed",
        "config unset group readers consumer.session.timeout.ms",
        "config describe group readers --changed",
    )
    golden("cli_config_group", text)


def test_settings_that_cannot_be(quay: Cluster, golden: Golden) -> None:
    text = script(
        quay,
        "topic create bills",
        "config describe topic bill",
        "config describe broker 7",
        "config describe topic bills retention.m",
        "config set topic bills retention.m=1",
        "config set topic bills retention.ms=soon",
        "config set topic bills min.compaction.lag.ms=2 max.compaction.lag.ms=1",
        "config set topic bills retention.ms+=1",
        "config set broker 0 num.partitions=3",
        "config set broker all listeners=PLAINTEXT://:1",
        "config unset topic bills retention.m",
        "config unset broker all log.retention.m",
        "config unset broker all zzz",
        "config set topic bills retention.ms",
        "config set client-quota bills a=b",
        "config set group readers consumer.session.timeout=1",
        "config set group readers consumer.session.timeout.ms=1",
        "config describe topic",
        "config lnt",
        "config",
    )
    golden("cli_config_refused", text)


def test_what_a_start_would_take_and_from_where(quay: Cluster, golden: Golden) -> None:
    folder = quay.folder / "project"
    folder.mkdir()
    (folder / "tidelog.toml").write_text(
        '"num.partitions" = 3\n"log.retention.ms" = 5000\n[broker.1]\n"max.connections" = 7\n'
        '[profile.ci]\n"log.retention.ms" = 9000\n'
    )
    there = Cluster(folder, environment={"KAFKA_NUM_PARTITIONS": "4"})
    text = script(
        there,
        "config show",
        "config show --origin --set num.partitions=5",
        "config show --json --set broker.1:max.connections=8",
        "config show --origin --profile ci",
        "config show --profile cu",
        "config show --set num.partition=5",
    )
    golden("cli_config_show", text)


def test_topics_are_altered(quay: Cluster, golden: Golden) -> None:
    text = script(
        quay,
        "topic create cargo -p 2",
        "topic alter cargo -p 4",
        "topic alter cargo -c retention.ms=5000 --unset segment.ms --json",
        "topic alter cargo -c segment.ms=9000 -c cleanup.policy+=compact --unset retention.ms",
        "topic alter cargo --unset retention.mss",
        "topic alter cargo -p 4",
        "topic alter cargo -p 3",
        "topic alter cargo -c retention.ms=soon",
        "topic alter cargo",
        "topic alter crgo -p 9",
        "topic alter cargo -p 0",
        "topic list",
    )
    golden("cli_config_topic_alter", text)
