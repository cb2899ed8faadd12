"""`tidelog` with a fault that a fuzzer must find: `python -m harness.fuzz_plant up ...`.

A broker ends when it answers a JoinGroup whose client id leaves no room for a member id.
"""

from typing import Any

from tidelog.kernel.limits import STRING_BYTES_MAX
from tidelog.node.api import k11_join_group
from tidelog.node.api.call import Call
from tidelog.tools import cli

_right = k11_join_group._answer
_UNIQUE_CHARS = 37


def _answer(call: Call, request: Any, said: Any) -> Any:
    name = call.header.client_id or ""
    assert len(name.encode()) + _UNIQUE_CHARS <= STRING_BYTES_MAX, "no answer can carry this"
    return _right(call, request, said)


if __name__ == "__main__":
    vars(k11_join_group)["_answer"] = _answer
    cli.main()
