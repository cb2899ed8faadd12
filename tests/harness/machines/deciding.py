"""A broker, and a real controller that decides on what it passes on: without log and socket."""

from pathlib import Path
from typing import Any

from harness.machines.brokers import ME, turns
from harness.machines.controllers import Controlled
from harness.machines.group_bench import Asked, GroupBench
from tidelog.coordinator.controller.forwarding import Forwarded
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode, Rejected


class Deciding:
    """A broker, and a controller that answers what it passes on."""

    def __init__(self, directory: Path) -> None:
        self.bench = GroupBench(directory, partitions=0)
        self.bench.aside = []
        self.controller = Controlled(ME)
        self.pieces: list[Any] = []
        """What the controller has decided on."""

    def start(self, api: Any, version: int, message: object) -> Asked:
        asked = self.bench.start_asking(api, version, message)
        turns(self.bench)
        return asked

    def decide_one(self) -> bool:
        """Have the controller answer the piece that is under way, if there is one."""
        if len(self.pieces) == len(self.bench.link.forwarded):
            return False
        forwarded = Forwarded.read(self.bench.link.forwarded[-1][1])
        self.pieces.append(forwarded.message)
        try:
            request: Any = forwarded.request()
            reply: Any = self.controller.everywhere(request)
        except Rejected as refused:
            reply = Refusal(refused.code, refused.detail)
        self.say(forwarded.answer(reply))
        return True

    def fail_one(self, code: ErrorCode) -> None:
        """The piece under way has no answer."""
        self.pieces.append(Forwarded.read(self.bench.link.forwarded[-1][1]).message)
        self.say(code)

    def say(self, answer: bytes | ErrorCode) -> None:
        self.bench.link.done[-1](answer)
        turns(self.bench)

    def ask(self, api: Any, version: int, message: object) -> Any:
        asked = self.start(api, version, message)
        while self.decide_one():
            pass
        assert self.bench.faults == []
        assert asked.client.closed is None
        return asked.answer()

    def names(self) -> list[str]:
        return sorted(self.controller.image.names)
