"""What tests of mixed groups begin with, and how they look at what came of it."""

from typing import Any

from harness.machines.classic_clients import subscription
from harness.machines.consumer_groups import TopicsInMemory
from harness.machines.mixed_groups import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    Classic,
    Coordinator,
    Modern,
    turns,
)
from tidelog.node.groups import requests as ask
from tidelog.node.groups.history import Chapter
from tidelog.wire.errors import ErrorCode


def coordinator(**settings: int | str) -> Coordinator:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return Coordinator(TopicsInMemory(t=6), **given)


def formed(at: Coordinator, *names: str, cooperative: bool = False) -> list[Classic]:
    """Members of the classic protocol, with their shares."""
    members = [Classic(at, name, "t", cooperative=cooperative) for name in names]
    turns(members)
    at.wait(1)
    turns(members)
    assert all(one.uses for one in members)
    return members


def code(answer: Any) -> ErrorCode:
    assert not isinstance(answer, ask.Joined | ask.Synced)
    return ErrorCode.NONE if answer is None else answer.code


def latest(at: Coordinator) -> dict[str, Any]:
    return dict(next(one.fields for one in reversed(at.told) if one.chapter is Chapter.BEGAN))


def join_request(at: Coordinator, member_id: str = "", **changes: Any) -> ask.JoinGroup:
    given: dict[str, Any] = {
        "group": GROUP,
        "who": ask.Who(member_id, changes.pop("instance", None), -1),
        "client_id": "c",
        "client_host": "/127.0.0.1",
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": REBALANCE_MS,
        "protocol_type": "consumer",
        "protocols": (("eager", subscription("t")),),
        "needs_known_id": True,
        "may_skip_assignment": True,
        "new_member_id": f"new-{at.asked}",
    }
    return ask.JoinGroup(**{**given, **changes})


def mixed(at: Coordinator) -> tuple[Classic, Modern]:
    """One of each, with their shares."""
    (one,) = formed(at, "one")
    new = Modern(at, "new", "t")
    turns([one, new])
    assert (len(one.uses), len(new.uses)) == (3, 3)
    return one, new


def keep(at: Coordinator, seconds: float, *members: Classic | Modern) -> None:
    """These go on, the others are silent."""
    for _ in range(int(seconds)):
        at.wait(1)
        for member in members:
            member.turn()
