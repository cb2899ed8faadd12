"""What becomes of a partition after something happened. One pure function for each occasion.

A function takes what is known of the partition and gives what is to be written, or None where
nothing changes. Whoever stops or starts to lead raises the leader epoch, and so does who stops to
be a replica: what was heard of it before must not count when it is one again. Every change raises
the partition epoch.

Eligible leader replicas (KIP-966): while fewer replicas are in sync than `min.insync.replicas`
says, nothing is committed, so whoever was in sync when it became too few has every committed
record. They may lead when nobody is in sync any more; when enough are in sync again they are
forgotten. Who lost files while it was one of them is *last known*.
"""

from collections.abc import Collection, Sequence

import msgspec
from msgspec import Struct

from tidelog.coordinator.controller import selectors
from tidelog.coordinator.controller.selectors import Candidates, Fit
from tidelog.kernel.ids import NO_LEADER, BrokerId, Epoch
from tidelog.wire.metadata_records import PartitionView


class Rules(Struct, frozen=True):
    """What a topic's settings say on who may lead it."""

    min_in_sync: int = 1
    unclean: bool = False


class Placement(Struct, frozen=True):
    """Who holds a partition, and who of them comes or goes."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    def of(self, view: PartitionView) -> PartitionView:
        """The view with these replicas, and all else as it was."""
        return msgspec.structs.replace(
            view, replicas=self.replicas, adding=self.adding, removing=self.removing
        )


def new_partition(replicas: Sequence[BrokerId], fit: Fit) -> PartitionView:
    """The first view: every replica that is there is in sync, for there is nothing to be behind of.

    At least one replica is fit to lead; whoever places replicas sees to it.
    """
    in_sync = tuple(broker for broker in replicas if fit(broker))
    assert in_sync, replicas
    return PartitionView(replicas=tuple(replicas), isr=in_sync, leader=in_sync[0])


def brokers_lost(
    view: PartitionView, lost: Collection[BrokerId], fit: Fit, rules: Rules
) -> PartitionView | None:
    """Brokers can serve no more. All that go at once had every committed record."""
    in_sync = tuple(broker for broker in view.isr if broker not in lost)
    if in_sync == view.isr:
        return None
    selector = selectors.offline_partition if view.leader in lost else selectors.no_op
    return _selected(view, selector, in_sync, fit, rules)


def broker_leaves(
    view: PartitionView, leaving: BrokerId, fit: Fit, rules: Rules
) -> PartitionView | None:
    """A broker wants to stop: it leads nothing and holds nobody up from now on."""
    assert not fit(leaving), leaving
    if leaving not in view.isr:
        return None
    in_sync = tuple(broker for broker in view.isr if broker != leaving)
    return _selected(view, selectors.controlled_shutdown, in_sync, fit, rules)


def files_lost(view: PartitionView, broker: BrokerId, rules: Rules) -> PartitionView | None:
    """A broker registered without all that it had: it is not to be trusted with what is committed.
    It leads nothing at this moment, for its last life is over."""
    assert view.leader != broker, (view, broker)
    if broker not in view.isr and broker not in view.elr:
        return None
    in_sync = tuple(one for one in view.isr if one != broker)
    return changed(view, leader=view.leader, isr=in_sync, rules=rules, lost_files=(broker,))


def log_damaged(
    view: PartitionView, broker: BrokerId, fit: Fit, rules: Rules, *, usable: bool
) -> PartitionView | None:
    """A replica's files are no good: it is not trusted before it has them anew from others. Where
    only it can lead, and can still be read, it goes on. A lone replica is all there is: where
    nothing is left of it, that is written down before it leads again.

    The leader epoch rises, also if the same broker leads on and if the replica was not trusted: the
    leader may have proposed it, or propose it yet, by what it vouched for in this epoch. Only after
    that does the replica give up what it has.
    """
    if not view.trusts(broker):
        return _in_next_epoch(view, view) if broker in view.replicas else None
    is_lone = len(view.replicas) == 1
    if is_lone and (usable or view.leader == broker):
        return None

    def others(one: BrokerId) -> bool:
        return one != broker and fit(one)

    lost = brokers_lost(view, {broker}, others, rules)
    if lost is not None and lost.leader == NO_LEADER != view.leader and usable:
        return None
    after = files_lost(lost or view, broker, rules) or lost
    assert after is not None, (view, broker)
    return _in_next_epoch(view, after) or after


def _in_next_epoch(view: PartitionView, after: PartitionView) -> PartitionView | None:
    """The view after a change, in the next leader epoch: nothing counts that its leader heard of
    others before. None if nobody leads then, for such an epoch has nobody who hears."""
    if after.leader == NO_LEADER:
        return None
    return msgspec.structs.replace(
        after,
        leader_epoch=Epoch(view.leader_epoch + 1),
        partition_epoch=Epoch(view.partition_epoch + 1),
    )


def leader_without_room(
    view: PartitionView, others: Collection[BrokerId], fit: Fit, rules: Rules
) -> PartitionView | None:
    """The leader's disk is full, those of these others are not: one of them that is in sync leads.
    Where none is, it leads on, for nobody could do better without losing records.

    It leaves the ISR with the same record, so that nobody waits for what it cannot write. Its log
    is whole: it is eligible as others are who leave, and comes back once it has what the next
    leader has.
    """
    in_sync = tuple(broker for broker in view.isr if broker != view.leader)

    def has_room(broker: BrokerId) -> bool:
        return broker in others and fit(broker)

    if not any(has_room(broker) for broker in in_sync):
        return None
    return _selected(view, selectors.offline_partition, in_sync, has_room, rules)


def broker_joined(view: PartitionView, fit: Fit, rules: Rules) -> PartitionView | None:
    """Someone came back: a partition without a leader takes the first replica it can trust. Where
    there is but one replica there is no better one to wait for."""
    if view.leader != NO_LEADER:
        return None
    unclean = view.replicas if len(view.replicas) == 1 else ()
    return _selected(view, selectors.offline_partition, view.isr, fit, rules, unclean)


def in_sync_changed(
    view: PartitionView, isr: tuple[BrokerId, ...], fit: Fit, rules: Rules
) -> PartitionView:
    """The leader says who is in sync with it: it goes on in its epoch, unless that was what its
    reassignment waited for."""
    assert view.leader in isr, (view, isr)
    return moved_on(view, view.leader, isr, fit, rules)


def preferred_wanted(view: PartitionView, fit: Fit, rules: Rules) -> PartitionView | None:
    """Someone wants the preferred replica to lead."""
    return _selected(view, selectors.preferred_replica, view.isr, fit, rules)


def unclean_allowed(
    view: PartitionView, best: Sequence[BrokerId], fit: Fit, rules: Rules, *, lost_records: int = 0
) -> PartitionView | None:
    """A partition without a leader may have one that lacks committed records, the best first; the
    number of those that are known to be lost is written down."""
    if view.leader != NO_LEADER:
        return None
    after = _selected(view, selectors.offline_partition, view.isr, fit, rules, tuple(best))
    if after is None or after.lossy_elections == view.lossy_elections:
        return after
    return msgspec.structs.replace(after, lost_records=view.lost_records + lost_records)


def eligible_forgotten(view: PartitionView) -> PartitionView | None:
    """Another number of replicas must be in sync from now on: who was in sync when they became too
    few need not have what is committed next. While nobody is in sync nothing is committed."""
    if not view.isr or not view.elr:
        return None
    return msgspec.structs.replace(view, elr=(), partition_epoch=Epoch(view.partition_epoch + 1))


def changed(
    view: PartitionView,
    *,
    leader: BrokerId,
    isr: tuple[BrokerId, ...],
    rules: Rules,
    lost_files: Collection[BrokerId] = (),
    placement: Placement | None = None,
) -> PartitionView:
    """The view after a change of leader, of who is in sync, of who its replicas are."""
    clean = leader == NO_LEADER or leader in isr or leader in view.elr
    if leader != NO_LEADER and leader not in isr:
        isr = (leader,)
    moved = view if placement is None else placement.of(view)
    elr, last_known = _others(moved, isr, rules, lost_files) if clean else ((), ())
    return msgspec.structs.replace(
        moved,
        leader=leader,
        isr=isr,
        elr=elr,
        last_known=last_known,
        leader_epoch=Epoch(
            view.leader_epoch + (leader != view.leader or _somebody_goes(view, moved))
        ),
        partition_epoch=Epoch(view.partition_epoch + 1),
        lossy_elections=view.lossy_elections + (not clean),
    )


def _selected(
    view: PartitionView,
    selector: selectors.Selector,
    isr: tuple[BrokerId, ...],
    fit: Fit,
    rules: Rules,
    unclean: tuple[BrokerId, ...] = (),
) -> PartitionView | None:
    """The view with this ISR under whom the selector names; None where it is what it was."""
    candidates = Candidates(
        replicas=view.replicas, isr=isr, elr=view.elr, leader=view.leader, fit=fit, unclean=unclean
    )
    leader = selector(candidates)
    if leader == view.leader and isr == view.isr:
        return None
    return moved_on(view, leader, isr, fit, rules)


def moved_on(
    view: PartitionView,
    leader: BrokerId,
    isr: tuple[BrokerId, ...],
    fit: Fit,
    rules: Rules,
    placement: Placement | None = None,
) -> PartitionView:
    """The view under this leader, with this ISR, on these replicas. Where that is all that its
    reassignment waited for, it is over with the same record: the others are no replicas any more.

    It waits for everyone it shall have to be in sync, and for one of them who may lead. An election
    that may have lost records ends none: who is to go may be the last to have them.
    """
    moved = view if placement is None else placement.of(view)
    in_sync = (leader,) if leader in view.elr and leader not in isr else isr
    target = moved.target
    if moved.is_moving and set(target) <= set(in_sync) and leader in {NO_LEADER, *in_sync}:
        kept = tuple(one for one in in_sync if one in target)
        candidates = Candidates(replicas=target, isr=kept, elr=(), leader=leader, fit=fit)
        chosen = selectors.reassigned_partition(candidates)
        if chosen != NO_LEADER:
            over = Placement(target)
            return changed(view, leader=chosen, isr=kept, rules=rules, placement=over)
    return changed(view, leader=leader, isr=isr, rules=rules, placement=placement)


def _somebody_goes(view: PartitionView, moved: PartitionView) -> bool:
    return not set(view.replicas) <= set(moved.replicas)


def _others(
    view: PartitionView, isr: tuple[BrokerId, ...], rules: Rules, lost_files: Collection[BrokerId]
) -> tuple[tuple[BrokerId, ...], tuple[BrokerId, ...]]:
    """Who is eligible besides the members of the ISR, and who is last known."""
    if len(isr) >= min(rules.min_in_sync, view.factor):
        return (), ()
    outside = [broker for broker in view.replicas if broker not in isr]
    were = {*view.isr, *view.elr}
    eligible = tuple(one for one in outside if one in were and one not in lost_files)
    known = {*were, *view.last_known}
    last_known = tuple(one for one in outside if one in known and one not in eligible)
    return eligible, last_known
