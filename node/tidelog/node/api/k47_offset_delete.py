"""OffsetDelete (key 47), version 0: offsets of topics that the group's members do not read."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from tidelog.kernel import limits
from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.parts import ANYWAY, Parts, in_parts
from tidelog.node.api.registry import Route
from tidelog.node.groups.requests import DeleteOffsets
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k47_offset_delete import (
    API,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def offset_delete(call: Call, request: OffsetDeleteRequest) -> object | None:
    return in_parts(call, _deleted(call, request))


def _deleted(call: Call, request: OffsetDeleteRequest) -> Parts:
    """All parts are deleted also if the client leaves after the first, as one part would be."""
    deletion = _Deletion(call, request.group_id)
    some: list[tuple[str, OffsetDeleteResponsePartition]] = []
    for topic in request.topics:
        answer = OffsetDeleteResponseTopic(name=topic.name)
        deletion.answer.topics.append(answer)
        for one in topic.partitions:
            if len(some) >= limits.ROWS_PER_STEP:
                deletion.ask(some)
                some = []
                yield ANYWAY
            row = OffsetDeleteResponsePartition(partition_index=one.partition_index)
            answer.partitions.append(row)
            some.append((topic.name, row))
    deletion.ask(some)
    deletion.end()
    return None


class _Deletion:
    """The answer of one request while the group decides, part by part."""

    def __init__(self, call: Call, group: str) -> None:
        self.answer = OffsetDeleteResponse(error_code=0)
        self._call = call
        self._group = group
        self._waits_for = 1
        """The number of parts that are not decided, and 1 while more of them may come."""
        self._parts = 0

    def ask(self, some: Sequence[tuple[str, OffsetDeleteResponsePartition]]) -> None:
        """Have the group decide on a part."""
        call, known = self._call, []
        for topic, row in some:
            if partitions.exists(call.broker, topic, row.partition_index):
                known.append((topic, row))
            else:
                row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        is_first = self._parts == 0
        self._parts += 1
        if not (known or is_first):
            return
        self._waits_for += 1
        asked = tuple((topic, row.partition_index) for topic, row in known)
        done = call.later(partial(self._said, [row for _, row in known], is_first))
        if self._group:
            call.broker.groups.ask(call.now, self._group, DeleteOffsets(self._group, asked), done)
        else:
            done(Refusal(ErrorCode.INVALID_GROUP_ID))

    def end(self) -> None:
        """No further part comes."""
        self._waits_for -= 1
        if not self._waits_for and not self._call.abandoned:
            refused = self.answer.error_code
            self._call.answer(OffsetDeleteResponse(error_code=refused) if refused else self.answer)

    def _said(
        self,
        rows: Sequence[OffsetDeleteResponsePartition],
        is_first: bool,  # noqa: FBT001 -- bound in one place
        said: Any | Refusal,  # noqa: ANN401 -- codes, or why not
    ) -> None:
        if isinstance(said, Refusal):
            if is_first:
                self.answer.error_code = said.code
            # With its last offset a group without members is gone: the others are deleted too.
            is_gone = said.code is ErrorCode.GROUP_ID_NOT_FOUND
            said = [ErrorCode.NONE if is_gone else said.code] * len(rows)
        for row, code in zip(rows, said, strict=True):
            row.error_code = code
        self.end()


ROUTE = Route(API, range(1), offset_delete, "of topics that the group does not read")
