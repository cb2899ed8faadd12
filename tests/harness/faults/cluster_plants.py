"""Known holes of this family of designs, put back on purpose: each must be caught by a checker.

Only tests can do that: a plant replaces a function of the core for as long as it is in the ground.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest
from msgspec.structs import replace

from tidelog.coordinator.controller import elections, isr_changes
from tidelog.kernel.files import Syncable
from tidelog.kernel.ids import NO_EPOCH, NO_LEADER, Epoch, Offset
from tidelog.node.ipc.events import Kind
from tidelog.node.log.log import Log
from tidelog.node.log.rounds import Round, Rounds
from tidelog.node.log.segment import Segment
from tidelog.node.log.unflushed import Unflushed
from tidelog.node.replica import sending
from tidelog.node.replica.follower import Follower
from tidelog.node.replica.hosting import Hosting
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.receiving import Receiving
from tidelog.node.replica.replicas import Replica
from tidelog.node.replica.replication import Replication
from tidelog.node.replica.sending import Sending

Swap = tuple[Any, str, Any]


def _kip_101() -> list[Swap]:
    """A follower cuts its log to its own high watermark before it asks."""
    attach = Receiving._attach

    def cuts(self: Any, now: Any, stream: Any, replica: Any) -> None:
        before, high = replica.log.end, replica.high_watermark
        if high < before:
            replica.log.truncate_to(high)
            self._note(Kind.TRUNCATED, replica, (before, replica.log.end, 0, 0, 0))
        attach(self, now, stream, replica)

    return [(Receiving, "_attach", cuts)]


def _kip_279() -> list[Swap]:
    """Asked for an epoch it never had, a leader answers where the next one began."""

    def answers(log: Log, epoch: Epoch) -> tuple[Epoch, Offset]:
        later = [start for known, start in log.epochs.entries() if known > epoch]
        if epoch == NO_EPOCH or not later:
            return epoch, Offset(log.end)
        return epoch, Offset(later[0])

    return [(sending, "epoch_end", answers)]


def _kip_320() -> list[Swap]:
    """A leader takes followers of older epochs as they are."""
    attach = Sending.attach

    def takes(self: Any, now: Any, stream: Any, asked: Any) -> None:
        view = self.image.partition(asked.topic, asked.partition)
        replica = self._replicas.get((self.image.topics[asked.topic].name, asked.partition))
        if replica is None or replica.leader is None or view.leader_epoch <= asked.leader_epoch:
            attach(self, now, stream, asked)
            return
        start = Offset(min(asked.end, replica.log.end))
        self._attached(now, stream, asked, replica, start)

    return [(Sending, "attach", takes)]


def _kafka_7128() -> list[Swap]:
    """The high watermark is enough to join, also where the epoch began above it."""

    def may_join(self: Any, broker: Any) -> bool:
        member = self.member(broker)
        return (
            member is not None
            and broker not in self.in_sync
            and member.vouched >= self.high_watermark
        )

    return [(Leader, "may_join", may_join)]


def _kafka_7415() -> list[Swap]:
    """A leader does not write down where its epoch began."""
    return [(Log, "begin_epoch", lambda _self, _epoch: None)]


def _kafka_9491() -> list[Swap]:
    """After all was cut, the high watermark stays where it was until there is something new."""
    learn = Follower.learn

    def start_anew(_self: Any, log: Log, start: Offset) -> None:
        log.truncate_fully_and_start_at(start)

    def learns(self: Any, log: Log, high_watermark: Offset) -> bool:
        return log.end > log.start and learn(self, log, high_watermark)

    return [(Follower, "start_anew", start_anew), (Follower, "learn", learns)]


def _kafka_9835() -> list[Swap]:
    """A read takes all there is by the time the file is looked at."""
    read = Log.read

    def reads(self: Any, offset: int, max_bytes: int, limit: int, *, min_one: bool) -> Any:
        return read(self, offset, max_bytes, max(limit, self.end), min_one=min_one)

    return [(Log, "read", reads)]


def _kip_841() -> list[Swap]:
    """Whether a follower is fenced is asked by nobody."""

    def by_the_leader(self: Any, _now: Any, _leader: Any, stream: Any) -> bool:
        return stream.peer in self._image.brokers

    def by_the_controller(image: Any, member: Any, _epoch: int) -> bool:
        return member in image.brokers

    return [
        (Replication, "_is_eligible", by_the_leader),
        (isr_changes, "_is_eligible", by_the_controller),
    ]


def _kip_903() -> list[Swap]:
    """What a broker vouched for counts for its next life too."""
    return [(Leader, "attached", lambda _self, _broker: None)]


def _kip_966() -> list[Swap]:
    """Who lost its files keeps its place."""
    return [(elections, "files_lost", lambda _view, _broker, _rules: None)]


def _proposed_once() -> list[Swap]:
    """After a proposal without an answer the leader counts the added replica, and asks no more."""
    return [(Leader, "in_doubt", property(lambda _self: False))]


def _unclean() -> list[Swap]:
    """An election that may lose records is not counted."""
    changed = elections.changed

    def silent(view: Any, **how: Any) -> Any:
        return replace(changed(view, **how), lossy_elections=view.lossy_elections)

    return [(elections, "changed", silent)]


def _unclean_by_default() -> list[Swap]:
    """Whoever is here leads, whether or not it has what is committed."""
    joined = elections.broker_joined

    def takes(view: Any, fit: Any, rules: Any) -> Any:
        after = joined(view, fit, rules)
        here = [one for one in view.replicas if fit(one)]
        if after is not None or view.leader != NO_LEADER or not here:
            return after
        found = elections.changed(view, leader=here[0], isr=(here[0],), rules=rules)
        return replace(found, lossy_elections=view.lossy_elections)

    return [(elections, "broker_joined", takes)]


def _damaged() -> list[Swap]:
    """Who has a damaged log keeps its place."""
    return [(elections, "log_damaged", lambda *_of, **_how: None)]


def _moved_too_early() -> list[Swap]:
    """A reassignment is over as soon as one of those it is for is in sync; all count as such."""
    moved_on = elections.moved_on

    def early(view: Any, leader: Any, isr: Any, *more: Any) -> Any:
        is_near = view.is_moving and set(isr) & set(view.target)
        return moved_on(view, leader, (*isr, *view.adding) if is_near else isr, *more)

    return [(elections, "moved_on", early)]


def _epoch_kept() -> list[Swap]:
    """A replica goes, and the leader leads on in its epoch."""
    return [(elections, "_somebody_goes", lambda _view, _moved: False)]


def _deleted_too_early() -> list[Swap]:
    """A broker deletes its replica when it hears that it shall go."""
    settle = Hosting._settle

    def early(self: Any, now: Any, topic: Any, partition: Any) -> None:
        if self._me in topic.partitions[partition].removing:
            self._drop(now, (topic.name, partition))
        else:
            settle(self, now, topic, partition)

    return [(Hosting, "_settle", early)]


def _vouch_before_flush() -> list[Swap]:
    """What is written is answered for, whatever the policy says."""
    data = Receiving._data

    def acks(self: Any, now: Any, stream: Any, replica: Any, message: Any, view: Any) -> None:
        data(self, now, stream, replica, message, view)
        if message.channel in stream.channels:
            stream.acks[message.channel] = None

    return [
        (Replica, "vouched", property(lambda self: Offset(self.log.end))),
        (Receiving, "_data", acks),
    ]


def _skip_fsync() -> list[Swap]:
    """Rounds end well, and force nothing out."""
    make = Rounds._make

    def nothing(self: Any, due: Any) -> Round:
        return make(self, due)._replace(chains=(), last=())

    return [(Rounds, "_make", nothing)]


def _fsync_wrong_file() -> list[Swap]:
    """An index is flushed, and what it indexes is not."""
    syncables = Segment.syncables

    def wrong(self: Any, *, sealed: bool) -> list[Syncable]:
        _, *others = syncables(self, sealed=sealed)
        return [self.offsets.file.syncable(), *others]

    return [
        (Segment, "syncables", wrong),
        (Segment, "held", lambda self: self._directory.open(self.offsets.file.name).held()),
    ]


def _skip_dirsync() -> list[Swap]:
    """New files are flushed, and the directories that name them are not."""
    named = Unflushed._named_since

    def unnamed(self: Any, point: int) -> list[Syncable]:
        return [one for one in named(self, point) if not hasattr(one, "names")]

    return [(Unflushed, "_named_since", unnamed)]


PLANTS: Final[dict[str, Callable[[], list[Swap]]]] = {
    "kip_101": _kip_101,
    "kip_279": _kip_279,
    "kip_320": _kip_320,
    "kafka_7128": _kafka_7128,
    "kafka_7415": _kafka_7415,
    "kafka_9491": _kafka_9491,
    "kafka_9835": _kafka_9835,
    "kip_841": _kip_841,
    "kip_903": _kip_903,
    "kip_966": _kip_966,
    "damaged": _damaged,
    "deleted_too_early": _deleted_too_early,
    "epoch_kept": _epoch_kept,
    "fsync_wrong_file": _fsync_wrong_file,
    "moved_too_early": _moved_too_early,
    "proposed_once": _proposed_once,
    "skip_dirsync": _skip_dirsync,
    "skip_fsync": _skip_fsync,
    "unclean": _unclean,
    "unclean_by_default": _unclean_by_default,
    "vouch_before_flush": _vouch_before_flush,
}


def plant_of(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    def plant(patch: pytest.MonkeyPatch) -> None:
        for owner, attribute, hole in PLANTS[name]():
            patch.setattr(owner, attribute, hole)

    return plant
