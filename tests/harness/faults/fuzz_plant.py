"""`tidelog` with a fault that a fuzzer must find: `python -m harness.faults.fuzz_plant up ...`.

A broker ends when it answers a JoinGroup whose client id leaves no room for a member id. The
coordinator ends when a topic of one name is to be made.
"""

from typing import Any, Final

from tidelog.coordinator.controller.requests import CreateTopics
from tidelog.coordinator.controller.shard import ControllerShard
from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import STRING_BYTES_MAX
from tidelog.node.api import k11_join_group
from tidelog.node.api.call import Call
from tidelog.tools import cli

DEADLY: Final = "ends-the-coordinator"
_right = k11_join_group._answer
_decide = ControllerShard.decide
_UNIQUE_CHARS = 37


def _answer(call: Call, request: Any, said: Any) -> Any:
    name = call.header.client_id or ""
    assert len(name.encode()) + _UNIQUE_CHARS <= STRING_BYTES_MAX, "no answer can carry this"
    return _right(call, request, said)


def _decided(shard: ControllerShard, now: Instant, asked: RequestId, request: Any) -> Any:
    if isinstance(request, CreateTopics):
        assert all(topic.name != DEADLY for topic in request.message.topics), DEADLY
    return _decide(shard, now, asked, request)


if __name__ == "__main__":
    vars(k11_join_group)["_answer"] = _answer
    setattr(ControllerShard, "decide", _decided)  # noqa: B010 -- mypy would have none assigned to
    cli.main()
