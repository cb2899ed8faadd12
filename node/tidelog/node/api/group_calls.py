"""How a handler asks the coordinators of groups, and answers when they have decided."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from tidelog.kernel.instant import Instant
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.parts import Parts, Turn, cost_of_name, each_once, in_parts
from tidelog.node.groups.requests import MORE, OffsetToCommit
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode

_RowT = TypeVar("_RowT")
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
    names: Iterable[str],
    request_of: Callable[[str], object],
    row_of: Callable[[str, Any | Refusal], _RowT],
    answer: Callable[[list[_RowT]], object],
) -> object | None:
    """Ask the coordinators of several groups, each once, however often it is named: one of many
    members, named often, would make an answer of gigabytes. `answer` gets a row for each.
    """

    def parts() -> Parts:
        once = yield from each_once(names, Turn())
        rows: dict[str, _RowT] = {}

        def done(name: str, said: Any | Refusal) -> None:  # noqa: ANN401 -- as above
            rows[name] = row_of(name, said)
            if len(rows) == len(once) and not call.abandoned:
                call.answer(answer([rows[name] for name in once]))

        if not once:
            return answer([])
        return (yield from ask_in_parts(call, ((one, request_of(one)) for one in once), done))

    return in_parts(call, parts())


def ask_in_parts(
    call: Call, asked: Iterable[tuple[str, object]], done: Callable[[str, Any | Refusal], None]
) -> Parts:
    """Ask the coordinators of groups, each of which is named once."""
    turn = Turn()
    for group, request in asked:
        if turn.is_over(cost_of_name(group)):
            yield None
        _ask_to_the_end(call, group, request, done, call.now)
    return None


def _ask_to_the_end(
    call: Call,
    group: str,
    request: object,
    done: Callable[[str, Any | Refusal], None],
    now: Instant,
) -> None:
    """Ask the same again as long as the coordinator says that it has done a part of it. It goes on
    if the client leaves: what was begun is not left half done."""

    def said(told: Any | Refusal) -> None:  # noqa: ANN401 -- each request has its own answer
        if told is MORE:
            call.broker.later(call.later(partial(_ask_to_the_end, call, group, request, done)))
        else:
            done(group, told)

    call.broker.groups.ask(now, group, request, call.later(said))


class CodedRow(Protocol):
    """One partition's row of an answer."""

    error_code: int


class CommitsInParts:
    """A commit of so many offsets that the group decides on it in parts.

    Each part is a decision and a batch of its own, so a part may be refused after others were
    committed: the protocol has a code for each partition. They are answered together.
    """

    def __init__(
        self, call: Call, group: str, answer: object, told: Callable[[ErrorCode], ErrorCode]
    ) -> None:
        self._call = call
        self._group = group
        self._answer = answer
        self._told = told
        """Takes what the group says, and gives the code that clients of this version know."""
        self._waits_for = 1
        """The number of parts that are not decided, and 1 while more of them may come."""
        self._first: Sequence[CodedRow] = ()
        self._as_first: list[CodedRow] = []

    def ask(self, request: object, rows: Sequence[CodedRow]) -> None:
        """Have the group decide on a part; `rows` of the answer get its code."""
        self._waits_for += 1
        self._first = self._first or rows
        call, done = self._call, self._call.later(partial(self._said, rows))
        if self._group:
            call.broker.groups.ask(call.now, self._group, request, done)
        else:
            done(Refusal(ErrorCode.INVALID_GROUP_ID))

    def refuse(self, code: ErrorCode, rows: Sequence[CodedRow]) -> None:
        """Do not have the group decide on this part."""
        for row in rows:
            row.error_code = self._told(code)

    def follow_first(self, rows: Sequence[CodedRow]) -> None:
        """Give these the code of the first part, without having the group decide on them."""
        self._as_first += rows

    def end(self) -> None:
        """No further part comes."""
        self._waits_for -= 1
        if self._waits_for or self._call.abandoned:
            return
        for row in self._as_first:
            row.error_code = self._first[0].error_code
        self._call.answer(self._answer)

    def _said(self, rows: Sequence[CodedRow], said: Any | Refusal) -> None:  # noqa: ANN401 -- None, or why not
        code = self._told(code_of(said))
        for row in rows:
            row.error_code = code
        self.end()


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
