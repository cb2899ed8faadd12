"""Where settings come from, which source wins, and what a wrong one is told."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tidelog.kernel.config import Setting, SettingError, Table, integer, one_of
from tidelog.tools.supervisor.sources import Flags, Wish, gather, origins, setting_name

TABLE = Table(
    [
        Setting("num.partitions", integer(1, 100), "1", "must be between 1 and 100", ""),
        Setting("flush.policy", one_of("os", "commit"), "os", "must be os or commit", ""),
        Setting("log.retention.ms", integer(-1, 10**12), "1", "must be -1 or more", ""),
    ]
)


def wish(
    folder: Path,
    *settings: str,
    environment: Mapping[str, str] | None = None,
    config: str | None = None,
) -> Wish:
    return gather(Flags(settings, config), environment or {}, folder, TABLE)


def refused(
    folder: Path,
    *settings: str,
    environment: Mapping[str, str] | None = None,
    config: str | None = None,
) -> str:
    with pytest.raises(SettingError) as raised:
        wish(folder, *settings, environment=environment, config=config)
    return str(raised.value)


def test_without_sources_nothing_is_set(tmp_path: Path) -> None:
    assert wish(tmp_path) == Wish()


def test_a_flag_sets_a_key_for_all_brokers_or_for_one(tmp_path: Path) -> None:
    got = wish(tmp_path, "num.partitions=6", "broker.1:flush.policy=commit")
    assert got.settings_of(0) == {"num.partitions": "6"}
    assert got.settings_of(1) == {"num.partitions": "6", "flush.policy": "commit"}


def test_an_unknown_key_is_told_its_neighbour(tmp_path: Path) -> None:
    assert "did you mean 'num.partitions'?" in refused(tmp_path, "num.partition=6")


def test_a_bad_value_is_told_the_rule_and_the_source(tmp_path: Path) -> None:
    sentence = refused(tmp_path, environment={"KAFKA_NUM_PARTITIONS": "many"})
    assert sentence == "KAFKA_NUM_PARTITIONS: num.partitions='many': must be between 1 and 100"


@pytest.mark.parametrize(
    "text", ["num.partitions", "=3", "broker.x:num.partitions=3", "topic.1:num.partitions=3"]
)
def test_a_flag_that_is_no_assignment_is_refused(tmp_path: Path, text: str) -> None:
    assert repr(text) in refused(tmp_path, text)


def test_flag_beats_our_variable_beats_kafkas_beats_file(tmp_path: Path) -> None:
    (tmp_path / "tidelog.toml").write_text("[broker]\nnum.partitions = 2\n")
    kafkas = {"KAFKA_NUM_PARTITIONS": "3"}
    ours = {"TIDELOG_NUM_PARTITIONS": "4", **kafkas}
    assert wish(tmp_path).settings == {"num.partitions": "2"}
    assert wish(tmp_path, environment=kafkas).settings == {"num.partitions": "3"}
    assert wish(tmp_path, environment=ours).settings == {"num.partitions": "4"}
    flag = wish(tmp_path, "num.partitions=5", environment=ours)
    assert flag.settings == {"num.partitions": "5"}


def test_the_number_of_brokers_has_the_same_order(tmp_path: Path) -> None:
    (tmp_path / "tidelog.toml").write_text("[cluster]\nbrokers = 2\nbase-port = 7000\n")
    environment = {"TIDELOG_BROKERS": "3"}
    assert gather(Flags(), {}, tmp_path, TABLE).brokers == 2
    assert gather(Flags(), {}, tmp_path, TABLE).base_port == 7000
    assert gather(Flags(), environment, tmp_path, TABLE).brokers == 3
    assert gather(Flags(brokers=4), environment, tmp_path, TABLE).brokers == 4


@pytest.mark.parametrize("value", ["0", "65", "-1", "two", ""])
def test_a_number_of_brokers_that_cannot_be_is_refused(tmp_path: Path, value: str) -> None:
    assert "between 1 and 64" in refused(tmp_path, environment={"TIDELOG_BROKERS": value})


def test_an_unknown_variable_of_ours_is_refused_and_anothers_is_not(tmp_path: Path) -> None:
    assert "TIDELOG_NUM_PARTITION" in refused(tmp_path, environment={"TIDELOG_NUM_PARTITION": "3"})
    foreign = {"KAFKA_HOME": "/opt/kafka", "KAFKA_OPTS": "-Xmx1g", "TIDELOG_CLUSTER": "x"}
    assert wish(tmp_path, environment=foreign).settings == {}


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("LOG_RETENTION_MS", "log.retention.ms"),
        ("A__B", "a_b"),
        ("A___B", "a-b"),
    ],
)
def test_variables_are_read_as_kafkas_images_do(variable: str, name: str) -> None:
    assert setting_name(variable) == name


def test_a_file_may_have_dotted_quoted_and_plain_keys(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(
        'log.retention.ms = 5\n[broker]\n"num.partitions" = 7\n[broker.2]\nflush.policy = "commit"'
    )
    got = wish(tmp_path, config=str(file))
    assert got.settings == {"log.retention.ms": "5", "num.partitions": "7"}
    assert got.settings_of(2)["flush.policy"] == "commit"


def test_a_properties_file_is_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# remark\n! remark\n\nnum.partitions = 7\n")
    assert wish(tmp_path, config=str(file)).settings == {"num.partitions": "7"}
    file.write_text("num.partitions=7\nnonsense\n")
    assert "line 2" in refused(tmp_path, config=str(file))
    file.write_text("num.partitions=x\n")
    assert "server.properties line 1: num.partitions='x'" in refused(tmp_path, config=str(file))


def test_pyproject_gives_only_our_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[project]\nname='x'\n[tool.tidelog.broker]\nnum.partitions=3\n"
    )
    assert wish(tmp_path).settings == {"num.partitions": "3"}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("x = [", "a.toml"),
        ("[cluster]\nbroker = 3", "did you mean 'brokers'?"),
        ("cluster = 3", "[cluster] must be a table"),
        ("broker = 3", "[broker] must be a table"),
        ("[broker]\nnum.partitions = 2020-01-01", "must be a text"),
        ("[broker]\nnum.partition = 2", "did you mean"),
        ("[brokers]\nnum.partitions = 2", "brokers.num.partitions"),
    ],
)
def test_a_wrong_file_is_told_what_is_wrong(tmp_path: Path, text: str, part: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)
    assert part in refused(tmp_path, config=str(file))


def test_a_missing_or_unreadable_file_is_told(tmp_path: Path) -> None:
    assert "there is no such file" in refused(tmp_path, config=str(tmp_path / "no.toml"))
    assert "cannot read" in refused(tmp_path, config=str(tmp_path))
    (tmp_path / "b.toml").write_bytes(b"\xff\xfe")
    assert "not UTF-8" in refused(tmp_path, config=str(tmp_path / "b.toml"))


PROFILES = """
log.retention.ms = 1
[cluster]
brokers = 2
base-port = 7000
[broker]
num.partitions = 2
[profile.ci]
log.retention.ms = 2
cluster.brokers = 3
[profile.ci.broker]
1.flush.policy = "commit"
[profile.big.broker]
num.partitions = 9
"""


def test_a_profile_beats_the_rest_of_its_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "tidelog.toml").write_text(PROFILES)
    plain = gather(Flags(), {}, tmp_path, TABLE)
    assert (plain.brokers, plain.settings["log.retention.ms"]) == (2, "1")
    got = gather(Flags(profile="ci"), {}, tmp_path, TABLE)
    assert (got.brokers, got.base_port) == (3, 7000)
    assert got.settings == {"log.retention.ms": "2", "num.partitions": "2"}
    assert got.settings_of(1)["flush.policy"] == "commit"
    kafkas = {"KAFKA_LOG_RETENTION_MS": "3", "TIDELOG_BROKERS": "4"}
    stronger = gather(Flags(profile="ci"), kafkas, tmp_path, TABLE)
    assert (stronger.brokers, stronger.settings["log.retention.ms"]) == (4, "3")
    flag = gather(Flags(["log.retention.ms=5"], profile="ci"), kafkas, tmp_path, TABLE)
    assert flag.settings["log.retention.ms"] == "5"


def test_a_profile_is_named_as_the_origin_of_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "tidelog.toml").write_text(PROFILES)
    found = origins(Flags(profile="ci"), {}, tmp_path, TABLE)
    assert [(one.name, one.where) for one in found] == [
        ("log.retention.ms", "tidelog.toml"),
        ("num.partitions", "tidelog.toml [broker]"),
        ("log.retention.ms", "tidelog.toml [profile.ci]"),
        ("flush.policy", "tidelog.toml [profile.ci] [broker.1]"),
    ]


def test_pyproject_may_have_profiles_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.tidelog.profile.ci]\nnum.partitions=3\n")
    assert gather(Flags(profile="ci"), {}, tmp_path, TABLE).settings == {"num.partitions": "3"}


@pytest.mark.parametrize(
    ("file", "text", "part"),
    [
        ("tidelog.toml", PROFILES, "has no profile 'bi'; did you mean 'big'?"),
        ("tidelog.toml", "[profile.nightly]\n", "has no profile 'bi'; it has: nightly"),
        ("tidelog.toml", "", "has no profile 'bi'; it has: none"),
        ("tidelog.toml", "profile = 3", "[profile] must be a table"),
        ("tidelog.toml", "[profile]\nbi = 3", "[bi] must be a table"),
        ("tidelog.toml", "[profile.bi.cluster]\nbroker = 3", "did you mean 'brokers'?"),
        ("tidelog.toml", "[profile.bi]\nnum.partitions = 0", "[profile.bi]: num.partitions='0'"),
        ("other.toml", PROFILES, "there is no tidelog.toml here; name a file with --config"),
    ],
)
def test_a_profile_that_cannot_be_is_told_what_is_wrong(
    tmp_path: Path, file: str, text: str, part: str
) -> None:
    (tmp_path / file).write_text(text)
    with pytest.raises(SettingError) as raised:
        gather(Flags(profile="bi"), {}, tmp_path, TABLE)
    assert part in str(raised.value)


def test_a_properties_file_has_no_profiles(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=3\n")
    with pytest.raises(SettingError, match=r"server\.properties has none"):
        gather(Flags(config=str(file), profile="ci"), {}, tmp_path, TABLE)


def test_values_keep_their_kafka_form(tmp_path: Path) -> None:
    table = Table([Setting(n, str, "", "", "") for n in ("a", "b", "c")])
    (tmp_path / "tidelog.toml").write_text('[broker]\na = true\nb = ["x", "y"]\nc = 0.5\n')
    got = gather(Flags(), {}, tmp_path, table)
    assert got.settings == {"a": "true", "b": "x,y", "c": "0.5"}
