"""What `tidelog up` refuses before anything is started, and what it says of the unforeseen."""

import subprocess
import sys
from pathlib import Path

import pytest

from tidelog.kernel.config import SettingError
from tidelog.tools.supervisor.sources import Flags
from tidelog.tools.supervisor.up import wish


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        ("messages", "log.flush.interval.messages"),
        ("interval", "log.flush.interval.ms"),
        ("bytes+messages", "log.flush.interval.messages"),
    ],
)
def test_a_policy_without_its_limit_is_refused_with_the_setting_to_give(
    tmp_path: Path, policy: str, limit: str
) -> None:
    with pytest.raises(SettingError) as raised:
        wish(Flags((f"flush.policy={policy}",)), {}, tmp_path)
    assert str(raised.value) == (
        f"flush.policy={policy} flushes by {limit}, which sets no limit: "
        f"give it too, as --set {limit}=N"
    )
    both = wish(Flags((f"flush.policy={policy}", f"{limit}=20")), {}, tmp_path)
    assert both.settings == {"flush.policy": policy, limit: "20"}


def test_of_one_broker_its_own_settings_count_with_those_of_all(tmp_path: Path) -> None:
    one = "broker.1:flush.policy=messages"
    with pytest.raises(SettingError, match=r"^broker\.1: flush\.policy=messages flushes by"):
        wish(Flags((one,)), {}, tmp_path)
    got = wish(Flags((one, "log.flush.interval.messages=20")), {}, tmp_path)
    assert got.settings_of(1)["flush.policy"] == "messages"


def test_bytes_have_a_limit_of_their_own(tmp_path: Path) -> None:
    assert wish(Flags(("flush.policy=bytes",)), {}, tmp_path).settings == {"flush.policy": "bytes"}


FAILS = """
import sys
from tidelog.tools.supervisor import up
from tidelog.tools.supervisor.report import PipeReport

def prepare(*_):
    raise OSError(5, "the machine is broken")

up._Preparation.prepare = prepare
request = up.Request("c", up.Path("/nowhere"), None, detached=True)
sys.exit(up.detach(request, PipeReport(1), up.Instant(0)))
"""


def test_who_waits_for_a_start_hears_what_nobody_foresaw() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAILS], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert "the supervisor failed: OSError: [Errno 5] the machine is broken" in done.stdout
    assert "Traceback" in done.stderr
