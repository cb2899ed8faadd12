"""Requests that brokers passed on and that wait for their answers, part by part."""

from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.coordinator.transactions.around import Session
from tidelog.coordinator.transactions.forwarded import Forwarded
from tidelog.coordinator.transactions.requests import Reply, Request
from tidelog.coordinator.transactions.state_partition import StatePartition
from tidelog.kernel.instant import Instant
from tidelog.wire.errors import ErrorCode


@dataclass(slots=True, eq=False)
class Call:
    """One frame. It is answered once each of its parts is."""

    session: Session
    number: int
    """As its broker counts."""
    deadline: Instant
    forwarded: Forwarded
    replies: list[Reply | None] = field(default_factory=list)
    missing: int = 0

    def expect(self, parts: int) -> None:
        self.replies = [None] * parts
        self.missing = parts

    def take(self, part: int, reply: Reply) -> bool:
        """Whether that was the last one."""
        assert self.replies[part] is None, part
        self.replies[part] = reply
        self.missing -= 1
        return self.missing == 0

    def answer(self) -> bytes:
        """The answer's frame without its size."""
        replies = [reply for reply in self.replies if reply is not None]
        assert len(replies) == len(self.replies), self.replies
        return self.forwarded.answer(replies)


class Question(NamedTuple):
    """One part of a call, and where it is decided."""

    call: Call
    part: int
    place: StatePartition
    request: Request


class Parked(NamedTuple):
    """A question that cannot be decided yet: most often it can, a few milliseconds later."""

    question: Question
    code: ErrorCode
    """What it is told if it still cannot be by then."""
    until: Instant
