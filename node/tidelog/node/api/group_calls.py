"""How a handler asks the coordinators of groups, and answers when they have decided."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parts, Turn, cost_of_name, in_parts
from tidelog.node.groups.requests import OffsetToCommit
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode

MEMBERS_PER_CONNECTION_MAX: Final = 100


def ask_group(
    call: Call, group: str, request: object, answer: Callable[[Any | Refusal], object]
) -> None:
    """Ask the group's coordinator; `answer` makes the response of what it says."""

    def done(said: Any | Refusal) -> None:  # noqa: ANN401 -- each request has its own answer
        if not call.abandoned:
            call.answer(answer(said))

    if group:
        call.broker.groups.ask(call.now, group, request, call.later(done))
    else:
        done(Refusal(ErrorCode.INVALID_GROUP_ID))


def speaks_for(call: Call, group: str, member_id: str) -> None:
    """Remember on which connection this member was last heard, where its end means something."""
    if not call.broker.settings["group.member.disconnect.ms"] or not member_id:
        return
    groups, session = call.broker.groups, call.client.session
    if len(session.on_end) < MEMBERS_PER_CONNECTION_MAX and groups.speaks_for(
        group, member_id, session
    ):
        session.on_end.append(partial(groups.ended, group, member_id, session))


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
    in_parts(call, _ask_all(call, asked, done))


def _ask_all(
    call: Call, asked: Sequence[tuple[str, object]], done: Callable[[int, Any | Refusal], None]
) -> Parts:
    turn = Turn()
    for at, (group, request) in enumerate(asked):
        if turn.is_over(cost_of_name(group)):
            yield None
        call.broker.groups.ask(call.now, group, request, call.later(partial(done, at)))
    return None


class CommitRow(Protocol):
    """One partition of a request that commits offsets."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


def offset_to_commit(call: Call, topic: str, asked: CommitRow) -> OffsetToCommit | ErrorCode:
    """What a group is to remember, or why it is not."""
    broker, index = call.broker, asked.partition_index
    metadata = asked.committed_metadata or ""
    if not partitions.exists(broker, topic, index):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(metadata.encode()) > broker.settings["offset.metadata.max.bytes"]:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    topic_id = broker.image.names[topic].id
    epoch = asked.committed_leader_epoch
    return OffsetToCommit(topic, topic_id, index, asked.committed_offset, epoch, metadata)


def code_of(said: object) -> ErrorCode:
    """Why nothing was decided, or NONE."""
    return said.code if isinstance(said, Refusal) else ErrorCode.NONE
