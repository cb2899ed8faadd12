"""A stop that comes while a process is still starting is kept until its loop runs."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import os, signal, sys, uvloop
from tidelog.node.runtime.process import on_stop_signal

loop = uvloop.new_event_loop()
on_stop_signal(loop, loop.stop)
if sys.argv[1] == "before":
    os.kill(os.getpid(), signal.SIGTERM)
else:
    loop.call_soon(os.kill, os.getpid(), signal.SIGTERM)
loop.run_forever()
print("stopped")
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_stop_is_heard_whenever_it_comes(moment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, moment],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("stopped\n", 0), done.stderr
