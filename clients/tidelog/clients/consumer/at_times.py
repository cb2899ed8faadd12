"""The first records that readers see and that are not older than a time.

A broker looks times up in its logs with the markers of transactions among the records, and a marker
has the time at which its transaction ended. In a topic whose records are older than that, as in a
copy that keeps their times, the answer may lie far before the first record that is meant. Nothing
before the answer is as young, so this search begins to read there.
"""

from collections.abc import Mapping

from tidelog.clients.admin.leaders import name_of
from tidelog.clients.admin.offsets import END, FoundOffset, list_offsets
from tidelog.clients.asking import Answered, Pause, Plan
from tidelog.clients.cluster_view import ClusterView, refresh
from tidelog.clients.consumer.fetcher import Fetcher
from tidelog.clients.consumer.reading import Fetched
from tidelog.clients.settings import ConsumerSettings, Isolation
from tidelog.kernel.ids import NO_EPOCH, Offset, TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import KIB

NOWHERE = FoundOffset(Offset(-1), -1, NO_EPOCH)
"""No record that is seen is as young."""
_PARTITION_BYTES = 256 * KIB
"""Of each answer: mostly its first batch is what is looked for."""
_PROGRESS = Pause(0, "records are looked at", renews=True)


def first_at_times(
    view: ClusterView, times: Mapping[TopicPartition, int], isolation: Isolation
) -> Plan[dict[TopicPartition, FoundOffset]]:
    """Of each partition the first visible record at or after its time; NOWHERE if there is none.

    Records that come while this looks need not be found.
    """
    lower = yield from list_offsets(view, times, isolation)
    begins = {one: found.offset for one, found in lower.items() if found.offset >= 0}
    if not begins:
        return dict.fromkeys(times, NOWHERE)
    search = _Search({one: times[one] for one in begins}, begins, isolation)
    yield from _read(view, search, isolation)
    if search.moved:
        # Retention or an election has moved these logs: the answer is another one now.
        again = {one: times[one] for one in search.moved}
        search.found.update((yield from first_at_times(view, again, isolation)))
    return {one: search.found.get(one, NOWHERE) for one in times}


def _read(view: ClusterView, search: "_Search", isolation: Isolation) -> Plan[None]:
    """Until each partition is found, or has been looked at to its end."""
    came = False
    while left := dict.fromkeys(search.fetcher.partitions, END):
        if came:
            yield _PROGRESS
        else:
            # This is asked again if nothing came: a log may have been cut.
            search.check_ends((yield from list_offsets(view, left, isolation)))
        if search.fetcher.partitions:
            came = yield from search.look(view)


class _Search:
    """Partitions in which nothing was found yet are the fetcher's.

    Its clock is the plan's own: it moves only when the plan pauses.
    """

    def __init__(
        self,
        times: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, Offset],
        isolation: Isolation,
    ) -> None:
        self._times = times
        self._ends: dict[TopicPartition, Offset] = {}
        self._clock = Instant(0)
        settings = ConsumerSettings(isolation=isolation, partition_bytes_max=_PARTITION_BYTES)
        self.fetcher = Fetcher(settings)
        self.fetcher.assign(begins)
        self.found: dict[TopicPartition, FoundOffset] = {}
        self.moved: set[TopicPartition] = set()

    def check_ends(self, ends: Mapping[TopicPartition, FoundOffset]) -> None:
        """Up to where to look: no further than at first, and not beyond the end of the log."""
        for one, end in ends.items():
            self._ends[one] = min(self._ends.get(one, end.offset), end.offset)
            self._check_end(one)

    def look(self, view: ClusterView) -> Plan[bool]:
        """Ask each leader once; whether records came."""
        fetcher = self.fetcher
        if fetcher.stale:
            stale = set(fetcher.stale)
            fetcher.stale.clear()
            yield from refresh(view, stale)
        calls = fetcher.poll(self._clock, view)
        if not calls:
            retry_at = fetcher.deadline()
            assert retry_at is not None, "each partition is asked for, or waits"
            left = next(iter(fetcher.partitions))
            yield Pause(retry_at - self._clock, f"{name_of(left)} cannot be read")
            self._clock = retry_at
            return False
        outcomes = yield [one.call for one in calls]
        came = False
        for call, outcome in zip(calls, outcomes, strict=True):
            if not isinstance(outcome, Answered):
                fetcher.lost(self._clock, call, outcome)
                continue
            for fetched in fetcher.answered(self._clock, call, outcome.message):
                came = True
                self._look_at(fetched)
        for one in {*fetcher.out_of_range, *fetcher.diverged}:
            self.moved.add(one)
            fetcher.drop(one)
        return came

    def _look_at(self, fetched: Fetched) -> None:
        one = fetched.partition
        found = fetched.first_not_older(self._times[one])
        self.fetcher.consumed(fetched)
        if found is None:
            self._check_end(one)
        else:
            self.found[one] = FoundOffset(Offset(found.offset), found.timestamp, fetched.epoch)
            self.fetcher.drop(one)

    def _check_end(self, one: TopicPartition) -> None:
        if self.fetcher.position(one) >= self._ends[one]:
            self.fetcher.drop(one)
