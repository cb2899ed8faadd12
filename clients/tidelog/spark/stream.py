"""A stream over a cluster, without Spark: where it begins, how far the next micro-batch goes.

One object lives as long as a run of the query. It decides on offsets; what lies between two of
them is computed from those alone, so that a micro-batch that is done again reads the same.
"""

import logging
from collections.abc import Mapping
from typing import Protocol

from tidelog.clients.admin.group_offsets import commit_offsets
from tidelog.clients.client import Client
from tidelog.clients.failures import ClientError
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.instant import ms
from tidelog.spark.loss import Loss, loss_of, tell, vanished
from tidelog.spark.offsets import (
    Json,
    OffsetRange,
    Positions,
    backlog,
    from_json,
    limited,
    ranges_between,
    split,
    to_json,
)
from tidelog.spark.options import LATEST, Offsets, Sides, SourceOptions, Times
from tidelog.spark.planning import (
    begins_now,
    check_all_there,
    ends_now,
    find_partitions,
    resolve,
)
from tidelog.wire.errors import ErrorCode, Rejected

_LOG = logging.getLogger("tidelog.spark")


class Kept(Protocol):
    """Where a stream remembers where it began, beside its checkpoint."""

    def read(self) -> Json | None: ...

    def write(self, offsets: Json) -> None:
        """Once; it must be there after a crash."""
        ...


class Stream:
    """What Spark asks of a stream's source on its driver."""

    def __init__(self, options: SourceOptions, client: Client, kept: Kept | None = None) -> None:
        self._options = options
        self._client = client
        self._kept = kept
        self._initial: Json | None = None
        self._has_planned = False
        self._frozen: Positions | None = None
        self._latest: Positions | None = None
        self._triggered_at = -1
        self._told_group: Positions = {}

    def initial(self) -> Json:
        """Where the stream begins; the same whenever it is asked, and where that is kept, by whom
        of its lives."""
        if self._initial is None and self._kept is not None:
            self._initial = self._kept.read()
        if self._initial is None:
            self._initial = to_json(self._begin())
            if self._kept is not None:
                self._kept.write(self._initial)
        return self._initial

    def freeze(self) -> None:
        """What there is now is all that this run reads."""
        self._frozen = self._ends({})

    def latest(self, start: Json, *, unlimited: bool = False) -> Json:
        """How far the next micro-batch goes; `start` again where there is none yet."""
        begun = from_json(start)
        self._tell_group(begun)
        ends = self._ends(begun)
        self._latest = ends
        if self._only_notes_where_it_begins(start):
            return start
        losses = self._losses(begun, ends)
        tell(losses, fails=self._options.fail_on_data_loss)
        goal = ends
        if self._frozen is not None:
            # Later ones are none of this run's; one that has shrunk ends where it ends now.
            goal = {one: min(until, ends.get(one, until)) for one, until in self._frozen.items()}
        lost = {one.partition for one in losses}
        goal = {
            one: until if one in lost else max(until, begun.get(one, until))
            for one, until in goal.items()
        }
        # Those that are not there any more stay where they are, so that a run comes to its end.
        return to_json({**begun, **self._step(begun, goal, unlimited=unlimited)})

    def report(self) -> Json | None:
        """How far the topics went when that was last asked."""
        return None if self._latest is None else to_json(self._latest)

    def ranges(self, start: Json, end: Json) -> list[OffsetRange]:
        """The tasks between two offsets."""
        self._has_planned = True
        return split(
            ranges_between(from_json(start), from_json(end)),
            parts_min=self._options.partitions_min,
            size_max=self._options.records_per_partition_max,
        )

    def committed(self, end: Json) -> None:
        """A micro-batch is done."""
        self._tell_group(from_json(end))

    def _only_notes_where_it_begins(self, start: Json) -> bool:
        """Whether this is the first micro-batch of a stream of which only the checkpoint can keep
        where it began: Spark notes no more than how far each micro-batch goes. So the first has no
        records, and whoever does it again has none, wherever the topics end by then."""
        is_first = not self._has_planned and start == self._initial
        return is_first and self._kept is None and begins_at_an_end(self._options)

    def _begin(self) -> Positions:
        options, client = self._options, self._client
        found = client.run(find_partitions(client.view, options.wanted))
        check_all_there(found)
        positions = client.run(
            resolve(
                client.view,
                found.partitions,
                options.starting,
                options.fetching.isolation,
                latest_if_too_young=options.latest_if_too_young,
            )
        )
        earliest = client.run(begins_now(client.view, positions))
        latest = client.run(ends_now(client.view, positions, Isolation.READ_UNCOMMITTED))
        judged = [loss_of(one, at, earliest[one], latest[one]) for one, at in positions.items()]
        tell([one for one in judged if one is not None], fails=options.fail_on_data_loss)
        return positions

    def _ends(self, begun: Positions) -> Positions:
        options, client = self._options, self._client
        found = client.run(find_partitions(client.view, options.wanted, patient=not begun))
        return client.run(ends_now(client.view, found.partitions, options.fetching.isolation))

    def _losses(self, begun: Positions, ends: Positions) -> list[Loss]:
        gone = [vanished(one, at) for one, at in begun.items() if one not in ends]
        beyond = [one for one, at in begun.items() if at > ends.get(one, at)]
        # What is not committed yet is no loss: the log goes beyond it.
        logs = self._client.run(ends_now(self._client.view, beyond, Isolation.READ_UNCOMMITTED))
        cut = [loss_of(one, begun[one], 0, logs[one]) for one in beyond]
        return [*gone, *(one for one in cut if one is not None)]

    def _step(self, begun: Positions, goal: Positions, *, unlimited: bool) -> Positions:
        limits = self._options.limits
        if unlimited or (limits.offsets_max is None and limits.offsets_min is None):
            return goal
        new = [one for one in goal if one not in begun]
        earliest = self._client.run(begins_now(self._client.view, new))
        if self._waits(sum(backlog(begun, goal, earliest).values())):
            return {one: begun[one] for one in goal if one in begun}
        if limits.offsets_max is None:
            return goal
        return limited(begun, goal, earliest, limits.offsets_max)

    def _waits(self, left: int) -> bool:
        """Whether so little is no micro-batch yet; the first, and what is frozen, never waits."""
        limits, now = self._options.limits, self._client.network.now()
        if limits.offsets_min is None or self._frozen is not None:
            return False
        late = self._triggered_at < 0 or now - self._triggered_at >= ms(limits.delay_ms)
        if left < limits.offsets_min and not late:
            return True
        self._triggered_at = now
        return False

    def _tell_group(self, positions: Positions) -> None:
        """How far the stream is, for whoever looks at lags; nothing here ever reads it."""
        group = self._options.group
        if group is None or positions == self._told_group or not positions:
            return
        try:
            codes = self._client.run(commit_offsets(self._client.view, group, positions))
        except ClientError as error:
            _LOG.warning("group %s is not told of this micro-batch: %s", group, error)
            return
        _check_told(group, codes)
        self._told_group = positions


def begins_at_an_end(options: SourceOptions) -> bool:
    """Whether it begins elsewhere when it is asked later."""
    match options.starting:
        case Offsets(by_partition):
            return LATEST in by_partition.values()
        case Times():
            return options.latest_if_too_young
        case side:
            return side is Sides.LATEST


def _check_told(group: str, codes: Mapping[TopicPartition, ErrorCode]) -> None:
    """A topic that is gone needs no offset; a group that has members is another program's."""
    for code in codes.values():
        if code not in {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}:
            raise Rejected(code, f"commitOffsetsToGroup={group}: nobody else may be in the group")
