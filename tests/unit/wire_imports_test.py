"""A process that speaks the protocol does not pay for what it does not use."""

import subprocess
import sys

HEAVY = ("asyncio", "cramjam", "dataclasses", "email", "importlib.metadata", "inspect", "pathlib")
PROGRAM = """
import sys
from tidelog.wire import frame, records
from tidelog.wire.registry import MODULES, api_for
api_for(0)
print(*[name for name in sys.modules if name in {heavy} or ".messages.k" in name])
"""


def test_speaking_one_api_imports_one_message_file_and_nothing_heavy() -> None:
    program = PROGRAM.replace("{heavy}", repr(set(HEAVY)))
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == ["tidelog.wire.messages.k00_produce"]
