"""What was ever committed, and whether every replica still stands to it."""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from harness.disks.memory_disk import MemoryDisk
from tidelog.kernel.ids import NO_LEADER, BrokerId, Incarnation, Offset, Partition, TopicPartition
from tidelog.node.log.log import Log
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.replicas import Replica
from tidelog.wire.metadata_records import PartitionView
from tidelog.wire.records import iterate_batches


class Piece(NamedTuple):
    """One batch, by what tells it from every other."""

    base: int
    end: int
    epoch: int
    crc: int


def pieces_of(log: Log, start: int, end: int) -> list[Piece]:
    """The batches of a log between two of their bounds."""
    pieces: list[Piece] = []
    at = max(start, log.start)
    while at < end and (found := log.read(at, 1 << 30, end, min_one=True)) is not None:
        for header, _ in iterate_batches(found.file.read(found.position, found.size)):
            at = header.next_offset
            pieces.append(Piece(header.base_offset, at, header.partition_leader_epoch, header.crc))
    return pieces


@dataclass
class Copy:
    """One replica's log as it was seen last. It stays when the process dies: so do the files."""

    life: Incarnation = Incarnation(0)
    high_watermark: int = 0
    pieces: dict[int, Piece] = field(default_factory=dict)
    """By their first offset, in order."""
    start: int = 0
    missing_from: int | None = None
    """As the log's: from there to its start a power loss took what nobody had deleted."""
    end: int = 0
    led: bool = False
    """Whether it was the leader when it was seen last."""
    matched: int = 0
    """So many pieces of the truth were found in it."""
    is_damaged: bool = False
    """It could not be opened: the cluster must hear of it before its broker is let in."""

    def cut(self, end: int) -> None:
        while self.pieces and next(reversed(self.pieces.values())).end > end:
            self.pieces.popitem()
        self.end = end
        self.matched = 0

    def between(self, start: int, end: int) -> list[Piece]:
        found = []
        for piece in reversed(self.pieces.values()):
            if piece.base < start:
                break
            if piece.end <= end:
                found.append(piece)
        return found[::-1]

    def see(self, log: Log) -> None:
        assert log.end >= self.end, (log.end, self.end)
        if log.end > self.end:
            MemoryDisk.seen_through = True
            for piece in pieces_of(log, self.end, log.end):
                self.pieces[piece.base] = piece
            MemoryDisk.seen_through = False
            self.end = log.end
        self.start, self.missing_from = log.start, log.missing_from

    def lacks(self, piece: Piece) -> bool:
        """What lies before its start was deleted, unless a power loss took it."""
        was_deleted = piece.end <= self.start and (
            self.missing_from is None or piece.base < self.missing_from
        )
        return not was_deleted and self.pieces.get(piece.base) != piece


@dataclass
class Truth:
    """One partition: all that was ever below a high watermark."""

    pieces: list[Piece] = field(default_factory=list)
    copies: dict[BrokerId, Copy] = field(default_factory=dict)
    leaders: dict[int, tuple[BrokerId, Incarnation]] = field(default_factory=dict)
    """Who led in each leader epoch."""
    lost: list[Piece] = field(default_factory=list)
    """What an election took that nobody promised would not."""
    lost_in: dict[tuple[int, int], int] = field(default_factory=dict)
    """The leader epoch of the election that took it, by first offset and checksum."""
    lossy_elections: int = 0
    is_lossy: bool = False
    lossy_epoch: int = 0
    """Leaders of earlier epochs commit nothing any more."""
    view: PartitionView | None = None
    """The partition's latest record."""
    unaware: dict[tuple[BrokerId, Incarnation, int], int] = field(default_factory=dict)
    """Who led, and in which epoch, when a lossy election named another leader though no broker was
    fenced; and the epoch of that election. Until it hears of that, it acknowledges what its own
    in-sync replicas hold."""

    by_base: dict[int, Piece] = field(default_factory=dict)
    committed: list[int] = field(default_factory=list)
    """In which epoch each piece was committed, or in a later one."""

    @property
    def end(self) -> int:
        return self.pieces[-1].end if self.pieces else 0

    def has(self, base: int, crc: int) -> bool:
        found = self.by_base.get(base)
        return found is not None and found.crc == crc

    def has_lost(self, base: int, crc: int) -> bool:
        return (base, crc) in self.lost_in

    def may_be_told(self, base: int, crc: int, epoch: int) -> bool:
        """Whether a broker that knows of no later leader epoch may say that this is committed: it
        is, or it was, and only the election of a later leader lost it. No broker can know of that
        before it hears of it, and no client can tell the answer from one that came late."""
        return self.has(base, crc) or epoch < self.lost_in.get((base, crc), epoch)

    def grow(self, pieces: Iterable[Piece], epoch: int) -> None:
        """A leader of this epoch has committed these."""
        for piece in pieces:
            self.pieces.append(piece)
            self.by_base[piece.base] = piece
            self.committed.append(max(epoch, *self.committed[-1:]) if self.committed else epoch)

    def may_grow(self, replica: Replica, *, is_news: bool) -> bool:
        """Not by what is no news after an unclean election, nor by who leads in an epoch that one
        ended, also if it hears of that in this very turn."""
        if epoch_of(replica) < self.lossy_epoch:
            return False
        return is_news or not self.is_lossy

    def take(self, lost: Iterable[Piece], epoch: int) -> None:
        """The election of this epoch loses these."""
        for piece in lost:
            self.lost.append(piece)
            self.lost_in[piece.base, piece.crc] = epoch

    def before(self, epoch: int) -> int:
        """How many pieces were committed in earlier epochs."""
        return bisect_left(self.committed, epoch)


def epoch_of(replica: Replica) -> int:
    """In which it leads, or has led until now."""
    return replica.log.latest_epoch if replica.leader is None else replica.leader.epoch


def _serves(image: MetadataImage, broker: BrokerId, life: Incarnation) -> bool:
    """Whether this life of the broker is let in, so that what it says to clients is heard."""
    return image.is_alive(broker) and image.brokers[broker].incarnation == life


def _stands_at_a_lost_front(replica: Replica) -> bool:
    """Whether its high watermark is only where its log begins, because a power loss took all the
    records before that, committed or not. This ends when it attaches to a leader or leads."""
    log, follower = replica.log, replica.follower
    return (
        replica.leader is None
        and (follower is None or not follower.attached)
        and log.missing_from is not None
        and replica.high_watermark == log.start
    )


class Witness:
    """Looks at every replica after every turn of its broker's loop."""

    def __init__(self) -> None:
        self.truths: dict[TopicPartition, Truth] = {}
        self.is_strict = True
        """Whether whatever is committed must stay: not where an unclean election is wanted."""
        self.unwatched: set[str] = set()
        """Topics that replicas compact, each in its own time."""

    def truth(self, key: TopicPartition) -> Truth:
        found = self.truths.get(key)
        if found is None:
            found = self.truths[key] = Truth()
        return found

    def copy(self, key: TopicPartition, broker: BrokerId) -> Copy:
        copies = self.truth(key).copies
        found = copies.get(broker)
        if found is None:
            found = copies[broker] = Copy()
        return found

    # -- what brokers tell

    def cut(self, replica: Replica, broker: BrokerId, end: int) -> None:
        """The replica cut its log back to there."""
        copy = self.copy(replica.key, broker)
        if self.is_strict and not self.truth(replica.key).is_lossy:
            assert end >= copy.high_watermark, ("cut below its high watermark", replica.key, broker)
        copy.cut(end)

    def emptied(self, replica: Replica, broker: BrokerId, start: int) -> None:
        """The replica starts anew there: the leader has nothing of what it held."""
        copy = self.copy(replica.key, broker)
        copy.pieces.clear()
        copy.end = copy.start = start
        copy.high_watermark = min(copy.high_watermark, start)
        copy.matched = 0

    def gone(self, broker: BrokerId, life: Incarnation, kept: Collection[TopicPartition]) -> bool:
        """This life of a broker holds only these: of the others it has nothing. Whether that is
        news of any."""
        dropped = False
        for key, truth in self.truths.items():
            copy = truth.copies.get(broker)
            if copy is not None and copy.life == life and copy.end and key not in kept:
                truth.copies[broker] = Copy(life)
                dropped = True
        return dropped

    def reborn(
        self,
        broker: BrokerId,
        logs: dict[TopicPartition, Log],
        life: Incarnation,
        *,
        damaged: Collection[TopicPartition] = (),
    ) -> None:
        """What a start found in the files; after a power loss that is less than there was."""
        for key, truth in self.truths.items():
            copy, log = truth.copies.get(broker), logs.get(key)
            if copy is None:
                continue
            fresh = truth.copies[broker] = Copy(life, is_damaged=key in damaged)
            if log is not None:
                fresh.start = fresh.end = log.start
                fresh.see(log)

    # -- after each turn

    def look(self, broker: BrokerId, life: Incarnation, replica: Replica) -> bool:
        """Whether the truth grew by it."""
        if replica.topic in self.unwatched:
            return False
        truth, log = self.truth(replica.key), replica.log
        copy = self.copy(replica.key, broker)
        copy.see(log)
        high = replica.high_watermark
        assert high <= log.end, ("a high watermark above the end", replica.key, broker)
        assert high >= log.start, ("a high watermark below the start", replica.key, broker)
        if copy.life == life:
            assert high >= copy.high_watermark or truth.is_lossy or not self.is_strict, (
                "a high watermark went back",
                replica.key,
                broker,
                copy.high_watermark,
                high,
            )
        if _stands_at_a_lost_front(replica):
            high = Offset(min(high, copy.high_watermark))  # it says nothing of any record
        # Who was deposed uncleanly wakes up with what is lost: it commits nothing by that.
        is_news = copy.life != life or not copy.led or high > copy.high_watermark
        rose = truth.may_grow(replica, is_news=is_news)
        known, copy.life, copy.high_watermark = copy.high_watermark, life, high
        if replica.leader is not None:
            self._leads(truth, replica, broker, life, known)
        led, copy.led = copy.led, replica.leader is not None
        if rose and (led or copy.led) and replica.follower is None and high > truth.end:
            # It leads, or has until this very turn.
            truth.grow(copy.between(truth.end, high), epoch_of(replica))
            return True
        if not self.is_strict or truth.is_lossy:
            return False
        assert high <= truth.end, ("a follower's high watermark above all leaders'", replica.key)
        who = f"broker {broker} below its high watermark"
        self._stands_to(truth, copy, high, who, spares_lost_front=True)
        return False

    def _leads(
        self, truth: Truth, replica: Replica, broker: BrokerId, life: Incarnation, known: int
    ) -> None:
        """Its high watermark was known to be there after its last turn."""
        assert replica.leader is not None
        epoch, me = replica.leader.epoch, (broker, life)
        first = truth.leaders.setdefault(epoch, me)
        assert first == me, ("two leaders of one epoch", replica.key, epoch, first, me)
        copy, earlier = truth.copies[broker], truth.before(epoch)
        if self.is_strict and copy.matched < earlier:
            who = f"leader {broker} of epoch {epoch}"
            self._stands_to(truth, copy, truth.pieces[earlier - 1].end, who)
        lossy_epoch = truth.unaware.get((broker, life, epoch))
        if lossy_epoch is not None:
            truth.take(copy.between(known, copy.high_watermark), lossy_epoch)

    def _stands_to(
        self, truth: Truth, copy: Copy, upto: int, who: str, *, spares_lost_front: bool = False
    ) -> None:
        at = copy.matched
        while at < len(truth.pieces) and truth.pieces[at].end <= upto:
            piece = truth.pieces[at]
            found = copy.pieces.get(piece.base)
            if not spares_lost_front or piece.end > copy.start:
                what = (who, "misses what was committed", piece, found, copy.end)
                assert not copy.lacks(piece), what
            at += 1
        if not spares_lost_front or copy.missing_from is None:
            copy.matched = at

    def members(self, image: MetadataImage) -> None:
        """Everybody who may be elected holds everything that is committed."""
        self._count_losses(image)
        if not self.is_strict:
            return
        for (name, partition), truth in self.truths.items():
            topic = image.names.get(name)
            if topic is not None:
                self._candidates(truth, image, topic.partitions[partition])

    def _candidates(self, truth: Truth, image: MetadataImage, view: PartitionView) -> None:
        fenced = [one for one in view.isr if not image.is_alive(one)]
        assert not fenced, ("a fenced broker is in sync", view)
        for broker in self.electable(view):
            copy = truth.copies.get(broker) or Copy()
            registered = image.brokers.get(broker)
            is_lone = {*view.replicas} - {*getattr(view, "adding", ())} == {broker}
            if copy.is_damaged and (is_lone or not image.is_alive(broker)):
                continue  # it says so before it is let in; a lone one serves nothing meanwhile
            if registered is not None and registered.incarnation == copy.life:
                self._stands_to(truth, copy, truth.end, f"candidate {broker} of {view}")

    def electable(self, view: PartitionView) -> list[BrokerId]:
        return [one for one in (*view.isr, *getattr(view, "elr", ())) if one != NO_LEADER]

    def lossy_election(self, key: TopicPartition, leader: BrokerId) -> list[Piece]:
        """The cluster chose a replica that may lack something: what of the committed is not in it
        is lost, and counted."""
        truth = self.truth(key)
        copy = truth.copies.get(leader) or Copy()  # in sync with a log without a record, say
        lost = [piece for piece in truth.pieces if copy.lacks(piece)]
        kept = [
            row for row in zip(truth.pieces, truth.committed, strict=True) if not copy.lacks(row[0])
        ]
        truth.pieces = [piece for piece, _ in kept]
        truth.committed = [epoch for _, epoch in kept]
        truth.take(lost, truth.lossy_epoch)
        truth.is_lossy = True
        for piece in lost:
            del truth.by_base[piece.base]
        for copy in truth.copies.values():
            copy.matched = 0
        return lost

    def _count_losses(self, image: MetadataImage) -> None:
        """What the cluster itself says may lose records, does."""
        for (name, partition), truth in self.truths.items():
            topic = image.names.get(name)
            view = None if topic is None else topic.partitions[partition]
            for who in [one for one in truth.unaware if not _serves(image, *one[:2])]:
                del truth.unaware[who]
            if view is not None and view.lossy_elections > truth.lossy_elections:
                truth.lossy_elections = view.lossy_elections
                truth.lossy_epoch = view.leader_epoch
                self._note_who_led(truth, image, view)
                self.lossy_election((name, Partition(partition)), view.leader)
            truth.view = view

    def _note_who_led(self, truth: Truth, image: MetadataImage, after: PartitionView) -> None:
        """Only if this very record took the leadership of a broker that is not fenced."""
        before = truth.view
        if before is None or before.partition_epoch + 1 != after.partition_epoch:
            return
        registered = image.brokers.get(before.leader)
        if registered is not None and _serves(image, before.leader, registered.incarnation):
            who = before.leader, registered.incarnation, before.leader_epoch
            truth.unaware[who] = after.leader_epoch
