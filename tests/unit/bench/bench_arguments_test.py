"""The programs of bench/ say how they are called, and take what they say."""

import importlib
import json

import pytest

PROGRAMS = (
    "append",
    "catch_up",
    "compaction",
    "compare",
    "consume",
    "crc_codec",
    "creation",
    "failover",
    "fetch",
    "group_protocols",
    "groups",
    "hot_path",
    "latency",
    "many_brokers",
    "many_connections",
    "many_partitions",
    "memory",
    "produce",
    "recovery",
    "rolling",
    "small_requests",
    "spark_commit",
    "spark_decode",
    "spark_encode",
    "spark_flat",
    "spark_io",
    "startup",
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_help_begins_with_examples(name: str) -> None:
    text = importlib.import_module(name).parser().format_help()
    first, second = text.splitlines()[:2]
    assert first == "examples:"
    called = "bench/compare --brokers 1" if name == "compare" else f"python bench/{name}.py"
    assert second == f"  {called}"
    assert "--runs" in text


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_example_parses(name: str) -> None:
    parser = importlib.import_module(name).parser()
    for line in parser.format_help().splitlines():
        words = line.removeprefix("  python ").split()
        if words and words[0].startswith("bench/"):
            assert parser.parse_args(words[1:]).runs > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_unknown_argument_ends_the_program(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        importlib.import_module(name).parser().parse_args(["--no-such-thing"])
    assert "--no-such-thing" in capsys.readouterr().err


def test_a_report_is_one_line_with_machine_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    measuring = importlib.import_module("measuring")
    measuring.report("produce", {"size": 100}, {"mb_per_s": 1.5}, [{"noisy": True}])
    (line,) = capsys.readouterr().out.splitlines()
    said = json.loads(line)
    assert said["bench"] == "produce"
    assert said["settings"] == {"size": 100}
    assert said["mb_per_s"] == 1.5
    assert said["noisy"] is True
    assert said["machine"]["cpus"] > 0
