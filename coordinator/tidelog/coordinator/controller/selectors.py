"""Who leads: five pure functions, one for each occasion.

Each is given what is known of a partition and who is fit to lead it, and names its leader from now
on, or NO_LEADER. Fit is who lives and is not about to stop. Replicas are looked at in the order of
preference, so that the preferred one leads whenever it can.
"""

from collections.abc import Callable, Iterable

from msgspec import Struct

from tidelog.kernel.ids import NO_LEADER, BrokerId

Fit = Callable[[BrokerId], bool]


class Candidates(Struct, frozen=True):
    """Everything that decides who leads a partition."""

    replicas: tuple[BrokerId, ...]
    """The preferred one first; while they are reassigned, those that it shall have."""
    isr: tuple[BrokerId, ...]
    elr: tuple[BrokerId, ...]
    leader: BrokerId
    fit: Fit
    unclean: tuple[BrokerId, ...] = ()
    """May lead though they may lack records that were acknowledged, the best first."""

    def first(self, *trusted: Iterable[BrokerId]) -> BrokerId:
        """The first fit replica of the first of these groups that has one."""
        for group in trusted:
            members = set(group)
            for replica in self.replicas:
                if replica in members and self.fit(replica):
                    return replica
        return NO_LEADER


Selector = Callable[[Candidates], BrokerId]


def no_op(candidates: Candidates) -> BrokerId:
    """Whoever leads goes on."""
    return candidates.leader


def offline_partition(candidates: Candidates) -> BrokerId:
    """Nobody leads: who is in sync, else who has all that is committed, else who is allowed to
    lead without it."""
    trusted = candidates.first(candidates.isr, candidates.elr)
    if trusted != NO_LEADER:
        return trusted
    return next((one for one in candidates.unclean if candidates.fit(one)), NO_LEADER)


def reassigned_partition(candidates: Candidates) -> BrokerId:
    """The leader stays if it stays a replica; else one of the new ones that is in sync."""
    if candidates.leader in candidates.replicas and candidates.fit(candidates.leader):
        return candidates.leader
    return candidates.first(candidates.isr)


def preferred_replica(candidates: Candidates) -> BrokerId:
    """The first of its replicas, if it is in sync; else everything stays as it is."""
    preferred = candidates.replicas[0]
    if preferred in candidates.isr and candidates.fit(preferred):
        return preferred
    return candidates.leader


def controlled_shutdown(candidates: Candidates) -> BrokerId:
    """The leader wants to stop: another one that has all that is committed. Never an unclean one:
    the partition waits for who stops, it is coming back."""
    if candidates.fit(candidates.leader):
        return candidates.leader
    return candidates.first(candidates.isr, candidates.elr)
