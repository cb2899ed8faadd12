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


COMPILING = """
import sys
made = []
sys.addaudithook(lambda event, given: made.append(given[1]) if event == "compile" else None)
from tidelog.wire.frame import encode_request
from tidelog.wire.messages import k00_produce as k00, k22_init_producer_id as k22
ours = lambda: [name for name in made if name in {"<InitProducerIdRequest>", "<ProduceRequest>"}]
print(len(ours()))
for _ in range(2):
    asked = k22.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    encode_request(k22.API, 4, 1, "c", asked)
print(*ours())
"""


def test_what_reads_and_writes_a_message_is_compiled_at_its_first_use_and_once() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", COMPILING], capture_output=True, text=True, check=True
    )
    before, *after = ran.stdout.split()
    assert before == "0"
    assert set(after) == {"<InitProducerIdRequest>"}
    assert len(after) <= 2, "its writer, and its constructor"
