"""Who leads a partition after something happened to a broker. One pure function for each case.

A function takes what is known of the partition and gives what is to be written, or None where
nothing changes. Whoever stops or starts to lead raises the leader epoch; every change raises the
partition epoch.
"""

from collections.abc import Callable, Sequence

import msgspec

from tidelog.kernel.ids import NO_LEADER, BrokerId, Epoch
from tidelog.wire.metadata_records import PartitionView

Alive = Callable[[BrokerId], bool]


def new_partition(replicas: Sequence[BrokerId], alive: Alive) -> PartitionView:
    """The first view: every replica that is there is in sync, for there is nothing to be behind of.

    At least one replica is alive; whoever places replicas sees to it.
    """
    in_sync = tuple(broker for broker in replicas if alive(broker))
    assert in_sync, replicas
    return PartitionView(replicas=tuple(replicas), isr=in_sync, leader=in_sync[0])


def broker_lost(view: PartitionView, lost: BrokerId, alive: Alive) -> PartitionView | None:
    """A broker can serve no more. It leaves the ISR unless it is the last one in it: the last
    member has every committed record, so the partition waits for it rather than lose them."""
    assert not alive(lost), lost
    if lost not in view.isr:
        return None
    in_sync = tuple(broker for broker in view.isr if broker != lost) or view.isr
    leader = view.leader
    if leader == lost:
        leader = _first(view.replicas, in_sync, alive)
    if leader == view.leader and in_sync == view.isr:
        return None
    return _changed(view, leader=leader, isr=in_sync)


def in_sync_changed(view: PartitionView, isr: tuple[BrokerId, ...]) -> PartitionView:
    """The leader says who is in sync with it: it goes on in its epoch."""
    assert view.leader in isr, (view, isr)
    return _changed(view, leader=view.leader, isr=isr)


def everyone_lost(view: PartitionView) -> PartitionView | None:
    """All brokers went at once: each member of the ISR has every committed record, all stay."""
    if view.leader == NO_LEADER:
        return None
    return _changed(view, leader=NO_LEADER, isr=view.isr)


def broker_joined(view: PartitionView, alive: Alive) -> PartitionView | None:
    """Someone came back: a partition without a leader takes the first replica it can trust."""
    if view.leader != NO_LEADER:
        return None
    leader = _first(view.replicas, view.isr, alive)
    if leader == NO_LEADER:
        return None
    return _changed(view, leader=leader, isr=view.isr)


def _first(replicas: Sequence[BrokerId], trusted: Sequence[BrokerId], alive: Alive) -> BrokerId:
    """In the order of the replicas, so that the preferred one leads whenever it can."""
    fit = (broker for broker in replicas if broker in trusted and alive(broker))
    return next(fit, NO_LEADER)


def _changed(view: PartitionView, *, leader: BrokerId, isr: tuple[BrokerId, ...]) -> PartitionView:
    leader_epoch = view.leader_epoch + (leader != view.leader)
    return msgspec.structs.replace(
        view,
        leader=leader,
        isr=isr,
        leader_epoch=Epoch(leader_epoch),
        partition_epoch=Epoch(view.partition_epoch + 1),
    )
