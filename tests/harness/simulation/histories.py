"""One drawn life of a cluster: writers, readers, and everything that may happen to processes and
pipes; then all is healed, and must become whole in bounded time."""

from collections.abc import Callable
from random import Random

from harness.simulation.clients import Clients
from harness.simulation.cluster import SimulatedCluster
from tidelog.kernel.ids import NO_LEADER, BrokerId
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.metadata_records import PartitionView

LASTS_MS = (1_000, 6_000)
WRITES_MAX = 300
HEALS_WITHIN_MS = 60_000
FAULTS = (
    "kill",
    "pause",
    "cut",
    "one_way",
    "slow",
    "coordinator",
    "stop",
    "clog",
    "lose",
    "power",
    "wipe",
    "rules",
)
MOVES = (0, 2)
"""Of five histories those whose seeds leave this rest have their replicas moved."""
THROTTLED = "200000"
"""Bytes a second, in half of those: all that is written fits into some seconds of it."""
RINGS = (0, 4_096, 65_536)
ONE_OF_TWO_DIRECTORIES = "directory"
TWO_DIRECTORIES_EVERY = 5
"""One history of so many, by its seed: all others are what they were before there were two."""
ONE_LEFT_DEAD = (0, 5, 7, 8, 9, 11, 12, 13)
"""Of fifteen histories, those whose seeds leave this rest are first healed without one broker. The
ones that failed before this was so are not among them: they must heal as they did then."""


class History:
    """What the seed says happens."""

    leaves_one_dead = True
    """Whether some of these histories are first healed without one broker."""

    def __init__(self, seed: int, **more: str) -> None:
        rng = self.rng = Random(seed)
        brokers = rng.choice([3, 3, 3, 4, 5])
        self.lag_ms = rng.choice([600, 2_000, 10_000])
        settings = {"replica.lag.time.max.ms": str(self.lag_ms)}
        settings |= {name.replace("_", "."): value for name, value in more.items()}
        self.directories = 1 if seed % TWO_DIRECTORIES_EVERY else 2
        self.cluster = SimulatedCluster(
            rng.randrange(1 << 30), brokers, settings, rng.choice(RINGS), self.directories
        )
        self.cluster.network.capacity = rng.choice([1_000, 1_000, 20])
        self.clients = Clients(self.cluster)
        self.kinds = rng.sample(FAULTS, rng.randint(1, len(FAULTS)))
        if self.directories > 1:
            self.kinds.append(ONE_OF_TWO_DIRECTORIES)
        self.partitions = rng.choice([1, 1, 3])
        factor = rng.choice([3, 3, 2])
        self.min_in_sync = rng.choice([1, 2, 2])
        self.sizes = rng.choice([(10, 50), (10, 2_000)])
        replicas = rng.sample(sorted(self.cluster.disks), factor)
        self.cluster.create(
            "t",
            *replicas,
            partitions=self.partitions,
            min_insync_replicas=str(self.min_in_sync),
            segment_bytes=str(rng.choice([16_384, 1 << 30])),
            unclean_leader_election_enable=rng.choice(["false", "false", "false", "true"]),
        )
        self.ends = Instant(self.cluster.now + ms(rng.uniform(*LASTS_MS)))
        self.over = False
        self.absent: BrokerId | None = None
        """This broker is not started: the others must take writes without it."""
        self._leaves_dead = Random(seed + 3) if seed % 15 in ONE_LEFT_DEAD else None
        self.moves = Random(seed + 1) if seed % 5 in MOVES else None
        """Apart from the other draws, so that those make the same history without it."""
        if self.moves is not None and self.moves.random() < 0.5:
            self.cluster.configure_all("leader.replication.throttled.rate", THROTTLED)
            self.cluster.configure("t", "leader.replication.throttled.replicas", "*")
            self.ends = Instant(self.cluster.now + ms(self.moves.uniform(*LASTS_MS)))

    def run(self) -> None:
        self._write_on()
        self._read_on()
        self._break_on()
        self._move_on()
        while self.cluster.now < self.ends:
            self.cluster.timeline.step(self.ends)
        self.over = True
        self.heal()
        self.clients.check_all_is_there()

    # -- clients

    def _every(self, milliseconds: tuple[float, float], action: Callable[[], None]) -> None:
        def again() -> None:
            if not self.over and (action != self._write or not self._has_written_all):
                action()
                self.cluster.timeline.after(self.rng.uniform(*milliseconds), again)

        self.cluster.timeline.after(self.rng.uniform(*milliseconds), again)

    def _write_on(self) -> None:
        pace = self.rng.choice([(0.1, 2.0), (1.0, 10.0), (5.0, 60.0)])
        self._every(pace, self._write)

    @property
    def _has_written_all(self) -> bool:
        return len(self.clients.writes) >= WRITES_MAX

    def _write(self) -> None:
        rng, partition = self.rng, self.rng.randrange(self.partitions)
        broker = self._some_leader(partition)
        if broker is not None:
            self.clients.write(
                broker,
                rng.randint(1, 3),
                rng.choice([-1, -1, -1, 1]),
                partition=partition,
                size=rng.randint(*self.sizes),
                timeout_ms=rng.choice([100, 5_000]),
            )

    def _some_leader(self, partition: int) -> BrokerId | None:
        """As some broker knows it, which may be wrong by now."""
        lives = list(self.cluster.lives.values())
        if not lives:
            return None
        topic = self.rng.choice(lives).link.image.names.get("t")
        leader = NO_LEADER if topic is None else topic.partitions[partition].leader
        return leader if leader in self.cluster.lives else None

    def _read_on(self) -> None:
        self._every((20.0, 300.0), self._read)

    def _read(self) -> None:
        partition = self.rng.randrange(self.partitions)
        broker = self._some_leader(partition)
        if broker is not None:
            self.clients.start_fetch(broker, self.rng.choice([0, 5, 50]), partition=partition)

    # -- faults

    def _break_on(self) -> None:
        self._every(self.rng.choice([(20.0, 200.0), (100.0, 1_500.0)]), self._break)

    def _break(self) -> None:
        getattr(self, f"_{self.rng.choice(self.kinds)}")()

    def _soon(self, action: Callable[[], None], *, most_ms: float = 3_000) -> None:
        self.cluster.timeline.after(
            self.rng.choice([0.0, 5.0, self.rng.uniform(0, most_ms)]), action
        )

    def _pick(self) -> BrokerId | None:
        lives = sorted(self.cluster.lives)
        leader = self._some_leader(0)
        if leader is not None and self.rng.random() < 0.5:
            return leader
        return self.rng.choice(lives) if lives else None

    def _kill(self) -> None:
        broker = self._pick()
        if broker is not None:
            self.cluster.kill(broker)
            self._soon(lambda: self._start(broker))

    def _start(self, broker: BrokerId) -> None:
        if broker not in self.cluster.lives and broker != self.absent:
            self.cluster.start(broker)

    def _power(self) -> None:
        """A machine loses power: of what it had not synced some stays, by draw."""
        broker = self._pick()
        if broker is not None:
            if self.rng.random() < 0.5:
                self.cluster.lives[broker].flush()
            self.cluster.lose_power(broker, Random(self.rng.random()))
            self._soon(lambda: self._start(broker))

    def _wipe(self) -> None:
        """A disk is replaced by an empty one."""
        broker = self._pick()
        if broker is not None:
            self.cluster.wipe(broker)
            self._soon(lambda: self._start(broker))

    def _directory(self) -> None:
        """The disk of one of a broker's directories breaks; before its next life it is mended, or
        not yet. (In place of an empty one nobody leads who has less: somebody must decide that.)"""
        broker = self._pick()
        if broker is None or self.cluster.disks[broker].broken:
            return
        name = self.rng.choice(["log0", "log1"])
        self.cluster.disks[broker].broken.add(name)
        fate = self.rng.choice(["mended", "mended", "later"])

        def again() -> None:
            disk = self.cluster.disks[broker]
            if broker in self.cluster.lives:
                self.cluster.kill(broker)
            if fate != "later":
                disk.broken.clear()
            self._start(broker)

        self._soon(again)

    def _rules(self) -> None:
        """Somebody changes what the topic asks for."""
        lives = [life for life in self.cluster.lives.values() if life.serving and not life.paused]
        if lives:
            self.cluster.begin_configure(
                self.rng.choice(lives), "t", "min.insync.replicas", self.rng.choice("12")
            )

    def _stop(self) -> None:
        broker = self._pick()
        if broker is not None and self.cluster.lives[broker].serving:
            self.cluster.begin_stop(broker)
            self._soon(lambda: self._start(broker))

    def _pause(self) -> None:
        broker = self._pick()
        if broker is None or self.cluster.lives[broker].paused:
            return
        life = self.cluster.lives[broker]
        self.cluster.pause(broker)

        def on() -> None:
            if life.alive and life.paused:
                self.cluster.resume(broker)

        self._soon(on)

    def _two(self) -> tuple[int, int]:
        one, other = self.rng.sample([*self.cluster.disks, 3_000], 2)
        return one, other

    def _cut(self) -> None:
        one, other = self._two()
        self.cluster.network.cut(one, other)
        self._soon(lambda: self.cluster.mend(one, other))

    def _one_way(self) -> None:
        one, other = self._two()
        self.cluster.network.cut_from(one, other)
        self._soon(lambda: self.cluster.mend(one, other))

    def _slow(self) -> None:
        one, other = self._two()
        self.cluster.network.slow(one, other, self.rng.choice([5.0, 50.0, 700.0]))
        self._soon(lambda: self.cluster.network.slow(one, other, 0.0))

    def _coordinator(self) -> None:
        if self.cluster.coordinator.front is not None:
            self.cluster.kill_coordinator()
            self._soon(self._start_coordinator, most_ms=600)

    def _start_coordinator(self) -> None:
        if self.cluster.coordinator.front is None:
            self.cluster.start_coordinator()

    def _clog(self) -> None:
        """Everything to one broker waits, then comes at once."""
        broker = self.rng.choice(sorted(self.cluster.disks))
        others = [one for one in self.cluster.disks if one != broker]
        for other in others:
            self.cluster.network.cut_from(other, broker)

        def on() -> None:
            for other in others:
                self.cluster.mend(other, broker, lose=False)

        self._soon(on, most_ms=1_000)

    def _lose(self) -> None:
        """Somebody's pipe connects anew: some of what it held is gone."""
        one, other = self._two()
        self.cluster.network.cut(one, other)
        self.cluster.timeline.after(
            self.rng.uniform(1, 30), lambda: self.cluster.mend(one, other, lose=True)
        )

    # -- what an operator does

    def _move_on(self) -> None:
        """Replicas go elsewhere, more or fewer of them; and now and then somebody thinks better
        of it."""
        moves = self.moves
        if moves is None:
            return
        pace = moves.choice([(20.0, 200.0), (100.0, 1_500.0)])

        def again() -> None:
            if not self.over:
                self._move(moves)
                self.cluster.timeline.after(moves.uniform(*pace), again)

        self.cluster.timeline.after(moves.uniform(*pace), again)

    def _move(self, moves: Random) -> None:
        lives = [life for life in self.cluster.lives.values() if life.serving and not life.paused]
        everybody = sorted(self.cluster.disks)
        target = moves.sample(everybody, moves.randint(1, min(4, len(everybody))))
        cancels, partition = moves.random() < 0.25, moves.randrange(self.partitions)
        if lives:
            life = moves.choice(lives)
            self.cluster.begin_reassign(life, *([] if cancels else target), partition=partition)

    # -- the end

    def heal(self) -> None:
        """Nothing is broken any more: every replica must come back in sync, and be equal. In some
        histories one broker stays dead at first, and the others must take writes without it."""
        cluster = self.cluster
        if self._leaves_dead is not None and self.leaves_one_dead:
            self._leave_one_dead(self._leaves_dead)
        cluster.mend_all()
        cluster.run(4_000)  # what was to be mended soon is
        cluster.mend_all()
        self._start_coordinator()
        cluster.mend_all()
        for broker in cluster.disks:
            self._revive(broker)
        if self.absent is not None:
            cluster.until(self._is_whole_without_one, within_ms=HEALS_WITHIN_MS)
            self._write_to_all(self._takes_writes)
            absent, self.absent = self.absent, None
            self._revive(absent)
        cluster.until(self._is_whole, within_ms=HEALS_WITHIN_MS)
        self._write_to_all(lambda _partition, _view: True)
        cluster.until(self._is_whole, within_ms=HEALS_WITHIN_MS)

    def _leave_one_dead(self, draws: Random) -> None:
        """One that died already, if there is one; some die while they join the in-sync replicas,
        and the coordinator with them."""
        cluster = self.cluster
        dead = [broker for broker in sorted(cluster.disks) if broker not in cluster.lives]
        broker = draws.choice(dead or sorted(cluster.lives))
        if draws.random() < 0.5:
            cluster.mend_all()
            self._start_coordinator()
            if broker in cluster.lives:
                cluster.kill(broker)
                cluster.run(draws.uniform(0, 300))
            self._start(broker)
            self._run_until_proposed()
            cluster.run(draws.uniform(0, 2))
            self._coordinator()
        self.absent = broker
        if broker in cluster.lives:
            cluster.kill(broker)

    def _run_until_proposed(self) -> None:
        """Until some leader waits for the answer to a proposal, or for a second."""
        until = Instant(self.cluster.now + ms(1_000))
        while not self._somebody_proposes() and self.cluster.timeline.step(until):
            pass

    def _somebody_proposes(self) -> bool:
        return any(
            replica.leader is not None and replica.leader.proposing
            for life in self.cluster.lives.values()
            for replica in life.replicas
        )

    def _revive(self, broker: BrokerId) -> None:
        cluster = self.cluster
        cluster.disks[broker].broken.clear()
        life = cluster.lives.get(broker)
        if life is not None and len(life.logs.working) < self.directories:
            cluster.kill(broker)
            life = None
        if life is None:
            self._start(broker)
        elif life.paused:
            cluster.resume(broker)

    def _write_to_all(self, takes: Callable[[int, PartitionView], bool]) -> None:
        """With acks=all, to each partition that must take it."""
        views = enumerate(self.cluster.image.names["t"].partitions)
        written = [
            self.clients.write(view.leader, partition=partition)
            for partition, view in views
            if takes(partition, view)
        ]
        self.cluster.until(lambda: all(one.is_over for one in written))
        assert all(one.is_acked for one in written), written

    def _is_whole_without_one(self) -> bool:
        views = self.cluster.image.names["t"].partitions
        return all(self._is_level_without_one(*one) for one in enumerate(views))

    def _is_level_without_one(self, partition: int, view: PartitionView) -> bool:
        """All who are here are in sync; only the absent one may be what a partition waits for."""
        cluster, here = self.cluster, {one for one in view.replicas if one != self.absent}
        if view.leader == NO_LEADER:
            waited_for = {*view.isr, *view.elr, *view.last_known}
            return self.absent in waited_for and not any(view.trusts(one) for one in here)
        if not all(one in cluster.lives and cluster.lives[one].serving for one in here):
            return False
        if self._begins_anew(here, partition):
            return False
        return set(view.isr) == here and self._knows(partition, view)

    def _begins_anew(self, here: set[BrokerId], partition: int) -> bool:
        """Whether one of several replicas is about to: a lone one keeps what it has."""
        damaged = [self.cluster.lives[one].replicas.damaged for one in here]
        return len(here) > 1 and any(("t", partition) in one for one in damaged)

    def _knows(self, partition: int, view: PartitionView) -> bool:
        """Whether the leader has the partition's latest record."""
        leader = self.cluster.replica(view.leader, "t", partition).leader
        return leader is not None and leader.partition_epoch == view.partition_epoch

    def _takes_writes(self, _partition: int, view: PartitionView) -> bool:
        """Whether enough are in sync for acks=all."""
        wanted = int(self.cluster.image.names["t"].configs["min.insync.replicas"])
        return view.leader != NO_LEADER and len(view.isr) >= min(wanted, view.factor)

    def _is_whole(self) -> bool:
        views = self.cluster.image.names["t"].partitions
        return all(self._is_level(*one) for one in enumerate(views))

    def _is_level(self, partition: int, view: PartitionView) -> bool:
        """All in sync, as the leader knows too, and nobody has more than another."""
        cluster, everybody = self.cluster, set(view.replicas)
        if set(view.isr) != everybody or view.leader == NO_LEADER or view.is_moving:
            return False
        if not all(cluster.lives[one].serving for one in everybody):
            return False
        if self._begins_anew(everybody, partition):
            return False
        if not self._knows(partition, view):
            return False
        replicas = [cluster.replica(one, "t", partition) for one in view.replicas]
        ends = {one.log.end for one in replicas}
        highs = {one.high_watermark for one in replicas}
        return len(ends) == len(highs) == 1
