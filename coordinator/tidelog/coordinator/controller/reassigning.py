"""Which replicas a partition has while it is reassigned, and when somebody changes their mind.

While it runs, the replicas are those it shall have and those that will go. `elections.moved_on`
ends it, as soon as all it shall have are in sync. Pure.
"""

from collections.abc import Sequence

from tidelog.coordinator.controller import elections, selectors
from tidelog.coordinator.controller.elections import Placement, Rules
from tidelog.coordinator.controller.selectors import Candidates, Fit
from tidelog.kernel.ids import NO_LEADER, BrokerId
from tidelog.wire.metadata_records import PartitionView


def started(
    view: PartitionView, target: Sequence[BrokerId], fit: Fit, rules: Rules
) -> PartitionView | None:
    """The view on its way to these replicas, in this order; None where it is so, or on this very
    way. One that is on another way goes on from where it is: nobody goes before it is over, for
    who goes may be in sync, and to cancel it leads back to where the first one began."""
    removing = tuple(sorted(set(view.replicas).difference(target)))
    adding = tuple(sorted({*view.replicas, *target}.difference(view.original)))
    placement = Placement((*target, *removing), adding, removing)
    if placement == Placement(view.replicas, view.adding, view.removing):
        return None
    return elections.moved_on(view, view.leader, view.isr, fit, rules, placement)


def cancelled(view: PartitionView, fit: Fit, rules: Rules) -> PartitionView | None:
    """The view without those who were being added; None where it would not have all that is
    committed any more, or nobody to lead it."""
    original = view.original
    isr = tuple(one for one in view.isr if one in original)
    elr = tuple(one for one in view.elr if one in original)
    candidates = Candidates(
        replicas=original,
        isr=isr,
        elr=elr,
        leader=view.leader,
        fit=fit,
        unclean=original if rules.unclean else (),
    )
    leader = selectors.reassigned_partition(candidates)
    if leader == NO_LEADER:
        leader = selectors.offline_partition(candidates)
    if leader == NO_LEADER and not _may_wait(view):
        return None
    return elections.changed(
        view, leader=leader, isr=isr, rules=rules, placement=Placement(original)
    )


def _may_wait(view: PartitionView) -> bool:
    """Nobody leads it, and those are among its original replicas for whom it waits."""
    trusted = (*view.isr, *view.elr) or view.last_known
    return view.leader == NO_LEADER and not set(trusted).isdisjoint(view.original)
