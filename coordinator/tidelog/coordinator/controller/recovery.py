"""Partitions that nobody may lead, and what their replicas say they have.

A replica of a partition without a leader tells where its log ends. Where all who had every
committed record lost files, the one that has most leads as soon as all of them are back. Where
unclean elections are allowed, the partition does not wait for the dead; only for those who lost
files, who are likely to come back at once after a power loss, it waits a while.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from tidelog.coordinator.controller import elections
from tidelog.coordinator.controller.selectors import Fit
from tidelog.coordinator.settings import RulesOf
from tidelog.kernel.ids import NO_LEADER, NO_OFFSET, BrokerId, Epoch, Offset, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import UNCLEAN_RECOVERY_WAIT_MS
from tidelog.node.log.flush_policy import OS
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.control import LogEnd
from tidelog.wire.metadata_records import PartitionChanged, PartitionView

Place = tuple[Uuid, int]


class Window(Struct, frozen=True):
    """What an election may have cost a partition."""

    records: int
    """As many as are known to be lost."""
    start: Offset = NO_OFFSET
    """From here on; NO_OFFSET where nobody said."""
    bound: str = OS.window
    """And no more than that, in words."""


class _Wait(Struct):
    leader_epoch: Epoch
    since: Instant
    ends: dict[BrokerId, LogEnd]


class Recovery:
    """Soft state: after a crash of the coordinator brokers tell it anew.

    Invariant: an end is of a broker's latest life, and counts in the leader epoch it was told in.
    """

    def __init__(self) -> None:
        self._waits: dict[Place, _Wait] = {}
        self._look_again: Instant | None = None

    def told(
        self, now: Instant, image: MetadataImage, broker: BrokerId, ends: Iterable[LogEnd]
    ) -> list[Place]:
        """A broker's logs end here; what belongs to another state of a partition is dropped. The
        places that it is news for."""
        news = []
        for end in ends:
            place = (end.topic, end.partition)
            view = image.partition(*place)
            if view is None or broker not in view.replicas or view.leader != NO_LEADER:
                continue
            if end.leader_epoch == view.leader_epoch:
                wait = self._waits.get(place)
                if wait is None or wait.leader_epoch != view.leader_epoch:
                    wait = self._waits[place] = _Wait(view.leader_epoch, now, {})
                wait.ends[broker] = end
                news.append(place)
        if news and self._look_again is None:
            self._look_again = Instant(now + ms(UNCLEAN_RECOVERY_WAIT_MS))
        return news

    def lost(self, now: Instant, broker: BrokerId) -> None:
        """This life of a broker is over: what its next one has is not known."""
        for wait in self._waits.values():
            wait.ends.pop(broker, None)
        self.look_again(now)

    def lost_from(self, place: Place, leader_epoch: Epoch, broker: BrokerId) -> Offset:
        """From where on the broker that was elected then may lack records: from the front of its
        log, if that is missing, else from its end. NO_OFFSET if it did not tell."""
        wait = self._waits.get(place)
        if wait is None or wait.leader_epoch != leader_epoch or broker not in wait.ends:
            return NO_OFFSET
        told = wait.ends[broker]
        return Offset(told.start - told.missing) if told.missing else told.end

    def elect(
        self, now: Instant, image: MetadataImage, rules: RulesOf, places: Iterable[Place]
    ) -> list[PartitionChanged]:
        """New leaders of these places where someone may lead now."""
        records = []
        for place in places:
            view = image.partition(*place)
            wait = self._waits.get(place)
            if wait is None:
                continue
            if view is None or wait.leader_epoch != view.leader_epoch:
                del self._waits[place]
                continue
            rule = rules(image.topics[place[0]])
            if _is_due(now, wait, view, image.is_active, unclean=rule.unclean):
                after = self.best_elected(place, view, image.is_active, rule)
                if after is not None:
                    records.append(PartitionChanged(*place, after))
        return records

    def expire(self, now: Instant, image: MetadataImage, rules: RulesOf) -> list[PartitionChanged]:
        """Time passed, or the rules changed: look at everyone who waits."""
        records = self.elect(now, image, rules, list(self._waits))
        times = [
            Instant(wait.since + ms(UNCLEAN_RECOVERY_WAIT_MS)) for wait in self._waits.values()
        ]
        self._look_again = min((one for one in times if one > now), default=None)
        return records

    def look_again(self, now: Instant) -> None:
        """Something changed that may let someone lead, once it is in the image: a setting, or
        somebody who was waited for dies or stops."""
        if self._waits:
            self._look_again = now

    def deadline(self) -> Instant | None:
        return self._look_again

    def best_elected(
        self, place: Place, view: PartitionView, fit: Fit, rule: elections.Rules
    ) -> PartitionView | None:
        """The view under the fit replica that has most. The latest epoch counts first, then who
        lacks the fewest committed records, then the longest log. None where nobody is known to have
        anything."""
        wait = self._waits.get(place)
        if wait is None or wait.leader_epoch != view.leader_epoch:
            return None
        ends = wait.ends
        found = [one for one in view.replicas if one in ends and ends[one].end >= 0 and fit(one)]
        lacks = {one: _records_lost(view, ends, one) for one in found}
        best = sorted(found, key=lambda one: _most_first(ends[one], lacks[one]))
        lost = lacks[best[0]] if best else 0
        return elections.unclean_allowed(view, best, fit, rule, lost_records=lost)


def _is_due(now: Instant, wait: _Wait, view: PartitionView, fit: Fit, *, unclean: bool) -> bool:
    """Whether nobody is worth waiting for."""
    here = [broker for broker in view.replicas if fit(broker)]
    if not all(broker in wait.ends for broker in here):
        return False  # who lives says in a moment what it has
    if not view.isr and not view.elr and all(fit(broker) for broker in view.last_known):
        # Where nothing of theirs can be read, somebody may still mend it.
        is_known = any(wait.ends[broker].end >= 0 for broker in view.last_known)
        if is_known:
            return True
    waited = now >= wait.since + ms(UNCLEAN_RECOVERY_WAIT_MS)
    return unclean and (waited or not view.last_known)


def _most_first(told: LogEnd, lacks: int) -> tuple[int, int, int]:
    """What to sort the replicas by that may lead. Of logs that lack a part of their front the end
    alone would tell nothing: the others would give up what they have of that part."""
    return -told.last_epoch, lacks, told.missing - told.end


def _records_lost(view: PartitionView, ends: Mapping[BrokerId, LogEnd], leader: BrokerId) -> int:
    """How many committed records are known to be missing where this one leads."""
    committed = max(end.high_watermark for end in ends.values())
    told = ends[leader]
    front = told.start - told.missing
    if view.lossy_elections:
        # It may have led without its front before. Then that was counted, and nobody has more.
        front = max(front, min(end.start for end in ends.values() if end.end >= 0))
    at_the_front = min(committed, told.start) - front
    return max(0, at_the_front) + max(0, committed - told.end)
