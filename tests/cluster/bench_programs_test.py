"""Every program of bench/ that asks one question, as short as it can be: it runs and reports."""

import json
import subprocess
import sys

import pytest

from harness.tidy_checks import ROOT

pytestmark = pytest.mark.slow

QUIET = ["--runs", "1", "--quiet-wait", "0"]
PROGRAMS = {
    "append": (["--mib", "2"], {"mb_per_s", "us_per_batch", "plain_write_us_per_batch"}),
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
    "crc_codec": (["--seconds", "0.01"], {"crc_16384_us", "decompress_zstd_mb_per_s"}),
    "failover": ([], {"ack_gap_s", "in_sync_s"}),
    "fetch": (["--records", "2000"], {"large", "small"}),
    "latency": (["--seconds", "0.5"], {"p50_ms", "p99_ms"}),
    "many_connections": (["--connections", "3", "--requests", "30", "--idle", "0.3"], {"points"}),
    "many_partitions": (["--partitions", "3", "--idle", "0.3"], {"points"}),
    "memory": (["--partitions", "20", "--connections", "5"], {"kb_per_partition"}),
    "produce": (["--seconds", "0.2", "--mb", "20"], {"mb_per_s", "client_cpu_s_per_gb"}),
    "recovery": (["--mib", "2"], {"seconds", "peak_memory_mib"}),
    "small_requests": (["--seconds", "0.2", "--mb", "20"], {"broker_ms_per_request"}),
    "startup": (["--idle", "0.3"], {"first_ack_s", "idle_pss_mb", "stop_s"}),
}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_program_reports_its_figures_in_one_line(name: str) -> None:
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
    }  # tested elsewhere; growth draws what was measured
