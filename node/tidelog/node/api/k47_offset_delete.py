"""OffsetDelete (key 47), version 0: offsets of topics that the group's members do not read."""

from typing import Any

from tidelog.node.api import partitions
from tidelog.node.api.call import Call
from tidelog.node.api.group_calls import ask_group
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


def offset_delete(call: Call, request: OffsetDeleteRequest) -> None:
    pairs = [
        (topic.name, one.partition_index) for topic in request.topics for one in topic.partitions
    ]
    unknown = {pair for pair in pairs if not partitions.exists(call.broker, *pair)}
    asked = [pair for pair in pairs if pair not in unknown]

    def answer(said: Any | Refusal) -> OffsetDeleteResponse:  # noqa: ANN401 -- codes, or why not
        if isinstance(said, Refusal):
            return OffsetDeleteResponse(error_code=said.code)
        codes = dict(zip(asked, said, strict=True))
        return OffsetDeleteResponse(
            error_code=0,
            topics=[
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=one.partition_index,
                            error_code=codes.get(
                                (topic.name, one.partition_index),
                                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            ),
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    ask = DeleteOffsets(request.group_id, tuple(asked))
    ask_group(call, request.group_id, ask, answer)


ROUTE = Route(API, range(1), offset_delete, "of topics that the group does not read")
