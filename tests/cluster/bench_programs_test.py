"""Every program of bench/ that asks one question, as short as it can be: it runs and reports."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.suite.need import need
from harness.suite.tidy_checks import ROOT
from measuring import tree

pytestmark = pytest.mark.slow

QUIET = ["--runs", "1", "--quiet-wait", "0"]
PROGRAMS = {
    "append": (["--mib", "2"], {"mb_per_s", "us_per_batch", "plain_write_us_per_batch"}),
    "catch_up": (
        ["--mib", "4", "--seconds", "0.3", "--patience", "2"],
        {"behind_gb", "mb_per_s_during", "follower_mb_per_s"},
    ),
    "compaction": (
        [
            "--mib",
            "2",
            "--keys",
            "500",
            "--loop-seconds",
            "0.2",
            "--broker-mib",
            "4",
            "--broker-seconds",
            "1",
        ],
        {"mb_per_s"},
    ),
    "consume": (["--records", "2000"], {"mb_per_s", "brokers_cpu_s_per_gb"}),
    "coordinator": ([], {"changed_s", "ack_gap_s"}),
    "crc_codec": (["--seconds", "0.01"], {"crc_16384_us", "decompress_zstd_mb_per_s"}),
    "creation": (
        ["--partitions", "6", "--times", "2"],
        {"create_one_ms", "create_many_s", "led_again_s", "written_again_s", "in_sync_again_s"},
    ),
    "disk": (["--segments", "20"], {"look_s", "command_s", "command_cpu_s"}),
    "failover": ([], {"ack_gap_s", "in_sync_s"}),
    "fetch": (["--records", "2000"], {"large", "small"}),
    "flush": (
        ["--alone", "--seconds", "0.3", "--warm", "0.2", "--mb", "5", "--clients", "6"],
        {"bulk_mb_per_s", "many_records_per_s", "steady_p99_ms", "commit_by_os", "disk_mb_per_s"},
    ),
    "group_protocols": (
        ["--members", "4", "--partitions", "8"],
        {"first_record_classic_s", "shared_consumer_s", "leave_consumer_ms"},
    ),
    "hot_path": (["--seconds", "0.2", "--mb", "20"], {"leader_ms", "followers_ms", "kinds"}),
    "latency": (["--seconds", "0.5"], {"p50_ms", "p99_ms"}),
    "many_brokers": (
        ["--brokers", "3", "--idle", "0.3", "--seconds", "0.2", "--mb", "20", "--partitions", "6"],
        {"points"},
    ),
    "many_connections": (["--connections", "3", "--requests", "30", "--idle", "0.3"], {"points"}),
    "ledger": (["--seconds", "0.01"], {"append_us_with", "append_us_without"}),
    "mapped_writes": (
        ["--mib", "2", "--synced", "2"],
        {"pwritev_mb_per_s", "mapped_faults_per_mb", "mapped_on_a_full_disk"},
    ),
    "many_partitions": (["--partitions", "3", "--idle", "0.3"], {"points"}),
    "memory": (["--partitions", "20", "--connections", "5"], {"kb_per_partition"}),
    "move": (
        ["--mib", "1", "--rate", "1", "--seconds", "0.3"],
        {"over_5s", "free_mb_per_s", "ack_p99_ms_held"},
    ),
    "page_cache": (
        ["--mib", "2", "--seconds", "0.2"],
        {"drop_left_mb", "tail_produce_most_cached_mb", "smooth_commit_max_ms"},
    ),
    "produce": (["--seconds", "0.2", "--mb", "20"], {"mb_per_s", "client_cpu_s_per_gb"}),
    "recovery": (["--mib", "2"], {"seconds", "peak_memory_mib"}),
    "rolling": (["--rest", "0"], {"lag_max_s", "late_max_s", "refused"}),
    "small_requests": (["--seconds", "0.2", "--mb", "20"], {"broker_ms_per_request"}),
    "spark_commit": (["--tasks", "2", "--batches", "2"], {"commit_ms", "ends_ms"}),
    "spark_decode": (["--rows", "20000"], {"columns_rows_per_cpu_s", "client_rows_per_cpu_s"}),
    "spark_encode": (["--rows", "20000"], {"columns_rows_per_cpu_s", "hashed_rows_per_cpu_s"}),
    "startup": (["--brokers", "3", "--idle", "0.3"], {"first_ack_s", "idle_pss_mb", "stop_s"}),
    "transactions": (
        ["--alone", "--seconds", "0.2", "--warm", "0.2", "--large-size", "10", "--kills", "1"],
        {"one", "hundred", "large", "kill"},
    ),
}

LONG = frozenset(
    {
        "catch_up",
        "compaction",
        "coordinator",
        "creation",
        "failover",
        "flush",
        "group_protocols",
        "hot_path",
        "many_brokers",
        "many_connections",
        "many_partitions",
        "memory",
        "move",
        "page_cache",
        "rolling",
        "transactions",
    }
)
"""However short they are kept: left to the night. The others use the same parts."""


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_program_reports_its_figures_in_one_line(name: str, *, nightly: bool) -> None:
    if name in LONG and not nightly:
        pytest.skip("takes seconds: run with --nightly")
    arguments, figures = PROGRAMS[name]
    done = subprocess.run(
        [sys.executable, ROOT / f"bench/{name}.py", *QUIET, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    said = json.loads(line)
    assert said["bench"] == name
    assert [key for key in figures if said[key] is None] == []
    assert len(said["runs"]) >= 1
    assert said["machine"]["cpus"] >= 1


def test_no_program_is_left_out() -> None:
    programs = {
        path.stem
        for path in (ROOT / "bench").glob("*.py")
        if "__main__" in path.read_text(encoding="utf-8")
    }
    assert programs == {
        *PROGRAMS,
        "compare",
        "growth",
        "groups",
        "spark_flat",
        "spark_io",
        "spark_job",
        "spark_page",
    }  # tested elsewhere; growth draws what was measured; all members of groups must come in 20 ms;
    # a session of Spark takes half a minute of processor time to show anything


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_is_ended_leaves_no_cluster_behind(
    number: signal.Signals, tmp_path: Path
) -> None:
    need("setpriv")
    words = [sys.executable, str(ROOT / "bench/startup.py"), *QUIET, "--idle", "100"]
    scratch = {**os.environ, "TMPDIR": str(tmp_path)}  # who is killed leaves it
    null = subprocess.DEVNULL
    with subprocess.Popen(words, env=scratch, stdout=null, stderr=null) as program:
        while not (started := broker_ancestry(program.pid)):
            assert program.poll() is None
            time.sleep(0.05)
        program.send_signal(number)
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in started):
        assert time.monotonic() < deadline, "processes are left"
        time.sleep(0.05)


def broker_ancestry(program: int) -> set[int]:
    """Its processes, once there is a broker among them."""
    found = tree([program])
    names = {name_of(pid) for pid in found}
    return found if "tide-broker0" in names else set()


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""
