"""A broker that leads every partition of `__consumer_offsets`, its handlers asked one by one."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.machines.brokers import FakeClient, HandlerBench, led_here
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.wire.frame import decode_response
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import k08_offset_commit, k09_offset_fetch
from tidelog.wire.metadata_records import PartitionChanged


class GroupBench(HandlerBench):
    """Time moves by `later` alone; what is due is done then."""

    def __init__(self, directory: Path, *, partitions: int = 2, **settings: str) -> None:
        super().__init__(directory, **settings)
        self._alarm: Instant | None = None
        self.broker.groups.alarm = self._set_alarm
        if partitions:
            self.topic(OFFSETS_TOPIC, partitions, cleanup_policy="compact")
        self.load()

    def _set_alarm(self, deadline: Instant) -> None:
        if self._alarm is None or deadline < self._alarm:
            self._alarm = deadline

    def load(self) -> None:
        """Let the coordinators read their logs."""
        while self.broker.groups.is_loading:
            self.broker.groups.ring(self.now)

    def later(self, milliseconds: float) -> None:
        """Let time pass; what falls due on the way is done when it does."""
        until = Instant(self.now + ms(milliseconds))
        while self._alarm is not None and self._alarm <= until:
            self.now = max(self.now, self._alarm)
            self._alarm = None
            following = self.broker.groups.ring(self.now)
            if following is not None:
                self._set_alarm(following)
        self.now = until

    def start_asking(self, api: AnyApi, version: int, message: object) -> "Asked":
        """A request on a connection of its own, which may wait for its answer."""
        asked = Asked(api, version)
        self.begin(asked.client, api, version, message)
        return asked


class Asked:
    """One request, and its answer once it is there."""

    def __init__(self, api: AnyApi, version: int) -> None:
        self.client = FakeClient()
        self._api = api
        self._version = version
        self._answer: Any = None

    def answer(self) -> Any:
        """None while it waits."""
        for frame in self.client.frames():
            assert self._answer is None, "answered twice"
            self._answer = decode_response(self._api, self._version, memoryview(frame))[1]
        return self._answer


def commit_request(
    group: str, offsets: dict[str, Iterable[int]], **fields: Any
) -> k08_offset_commit.OffsetCommitRequest:
    """Offsets by topic, of its partitions from 0 on."""
    topics = [
        k08_offset_commit.OffsetCommitRequestTopic(
            name=name,
            partitions=[
                k08_offset_commit.OffsetCommitRequestPartition(
                    partition_index=index, committed_offset=offset, committed_metadata=None
                )
                for index, offset in enumerate(values)
            ],
        )
        for name, values in offsets.items()
    ]
    return k08_offset_commit.OffsetCommitRequest(group_id=group, topics=topics, **fields)


def commit(
    bench: HandlerBench,
    group: str,
    offsets: dict[str, Iterable[int]],
    **fields: Any,
) -> Any:
    """The codes of one commit, in the order of the request; `version` is that of the request."""
    version = fields.pop("version", 8)
    request = commit_request(group, offsets, **fields)
    answer = bench.ask(k08_offset_commit.API, version, request)
    return [row.error_code for topic in answer.topics for row in topic.partitions]


def fetch_offsets(bench: HandlerBench, group: str, **topics: int) -> dict[tuple[str, int], int]:
    """What a group has committed, of so many partitions of each topic; of all where none is named.

    Where the group may not be asked, its code stands under no name.
    """
    wanted = [
        k09_offset_fetch.OffsetFetchRequestTopic(name=name, partition_indexes=list(range(count)))
        for name, count in topics.items()
    ]
    request = k09_offset_fetch.OffsetFetchRequest(group_id=group, topics=wanted or None)
    answer = bench.ask(k09_offset_fetch.API, 7, request)
    if answer.error_code:
        return {("", -1): answer.error_code}
    return {
        (topic.name, row.partition_index): row.committed_offset
        for topic in answer.topics
        for row in topic.partitions
    }


def elected_again(bench: HandlerBench, epoch: int) -> None:
    """This broker leads the groups' partitions anew: it knows only what their logs hold."""
    topic = bench.image.names[OFFSETS_TOPIC]
    bench.replay(
        *(
            PartitionChanged(
                topic.id, Partition(n), led_here(leader_epoch=epoch, partition_epoch=epoch)
            )
            for n in range(len(topic.partitions))
        )
    )
