"""How a handler asks the coordinators of groups, and answers when they have decided."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidelog.node.api.call import Call
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode


def ask_group(
    call: Call, group: str, request: object, answer: Callable[[Any | Refusal], object]
) -> None:
    """Ask the group's coordinator; `answer` makes the response of what it says."""

    def done(said: Any | Refusal) -> None:  # noqa: ANN401 -- each request has its own answer
        if not call.abandoned:
            call.answer(answer(said))

    if group:
        call.broker.groups.ask(call.now, group, request, done)
    else:
        done(Refusal(ErrorCode.INVALID_GROUP_ID))


def ask_groups(
    call: Call,
    asked: Sequence[tuple[str, object]],
    answer: Callable[[list[Any | Refusal]], object],
) -> None:
    """Ask the coordinators of several groups; `answer` gets what they say in the same order."""
    said: dict[int, Any] = {}

    def done(place: int, one: Any | Refusal) -> None:  # noqa: ANN401 -- as above
        said[place] = one
        if len(said) == len(asked) and not call.abandoned:
            call.answer(answer([said[at] for at in range(len(asked))]))

    if not asked:
        call.answer(answer([]))
    for at, (group, request) in enumerate(asked):
        call.broker.groups.ask(call.now, group, request, partial(done, at))


def code_of(said: object) -> ErrorCode:
    """Why nothing was decided, or NONE."""
    return said.code if isinstance(said, Refusal) else ErrorCode.NONE
