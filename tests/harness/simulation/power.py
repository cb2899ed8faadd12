"""Drawn lives of a cluster that loses power, one broker or all at once, under a flush policy: what
may be lost is what the policy says."""

from random import Random
from typing import Any, Final

from harness.simulation.ages import Ages
from harness.simulation.clients import Clients, Write
from harness.simulation.cluster import SimulatedCluster
from harness.simulation.histories import History
from harness.simulation.storage import FLUSH_TAKES_MS
from harness.simulation.truth import Piece
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import Instant, ms

MESSAGES: Final = 20
INTERVAL_MS: Final = 100
ROUND_MS: Final = 2 * 1.5 * max(FLUSH_TAKES_MS)
"""What is wanted may wait for the round under way, and then for its own."""
AGE_MS: Final = {"interval": INTERVAL_MS, "bytes+interval": 1_000}
POLICIES: Final = (
    {"flush_policy": "commit"},
    {"flush_policy": "commit"},
    {"flush_policy": "os"},
    {"flush_policy": "messages", "log_flush_interval_messages": str(MESSAGES)},
    {"flush_policy": "interval", "log_flush_interval_ms": str(INTERVAL_MS)},
    {"flush_policy": "bytes+interval", "flush_bytes": "500", "log_flush_interval_ms": "1000"},
)
FAULTS: Final = (
    "kill",
    "cut",
    "one_way",
    "slow",
    "coordinator",
    "stop",
    "clog",
    "lose",
    "power",
    "blackout",
    "rules",
)


class DatedClients(Clients):
    """They remember when they were answered, too."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        super().__init__(cluster)
        self.acked_at: dict[int, Instant] = {}
        """By the batch's checksum."""

    def write_batch(self, *batch: Any, **more: Any) -> Write:
        def over(write: Write) -> None:
            self.acked_at[write.crc] = self.cluster.now

        return super().write_batch(*batch, **{**more, "on_over": over})


class PowerHistory(History):
    """Faults that leave every disk what it is, but for what was not synced."""

    def __init__(self, seed: int) -> None:
        draws = Random(seed + 2)
        policy = draws.choice(POLICIES)
        self.policy = policy["flush_policy"]
        super().__init__(seed, **policy)
        self.changes = draws.random() < 0.25
        """Somebody changes the policy on the way: then no bound but that of each moment holds."""
        self.kinds = draws.sample(FAULTS, draws.randint(2, len(FAULTS)))
        self.kinds += ["blackout", "power"] if not {"blackout", "power"} & {*self.kinds} else []
        self.kinds += ["policy"] if self.changes else []
        if self.policy != "commit":
            self.moves = None  # a replica that was made just now has had all its records since then
        self._draws = draws
        self._cuts: list[Instant] = []
        self.clients: DatedClients = DatedClients(self.cluster)
        self.ages: Ages | None = None
        if self.policy in AGE_MS and not self.changes:
            self.ages = Ages(self.cluster, AGE_MS[self.policy] + ROUND_MS)
        self.cluster.configure("t", "unclean.leader.election.enable", "false")

    def run(self) -> None:
        super().run()
        self._check_bound()

    # -- faults

    def _power(self) -> None:
        self._cuts.append(self.cluster.now)
        super()._power()

    def _blackout(self) -> None:
        """All lose power, and come back in any order; now and then the coordinator restarts too."""
        rng, cluster = self.rng, self.cluster
        self._cuts.append(cluster.now)
        there = rng.sample(sorted(cluster.lives), len(cluster.lives))
        for broker in there:
            cluster.lose_power(broker, Random(rng.random()))
            self._soon(lambda broker=broker: self._start(broker))  # type: ignore[misc] # each its own

    def _policy(self) -> None:
        lives = [life for life in self.cluster.lives.values() if life.serving]
        if lives:
            life, policy = self._draws.choice(lives), self._draws.choice(["os", "commit", "bytes"])
            self.cluster.begin_configure(
                life, self._draws.choice(["t", ""]), "flush.policy", policy
            )

    # -- what may be lost

    def _check_bound(self) -> None:
        for partition in range(self.partitions):
            lost = self.cluster.witness.truth(("t", Partition(partition))).lost
            if lost and not self.changes:
                assert self._cuts, "records are lost, and nobody lost power"
                self._check_loss(lost)

    def _check_loss(self, lost: list[Piece]) -> None:
        assert self.policy != "commit", ("acknowledged, flushed, and lost", lost)
        if self.ages is not None:
            old = [piece for piece in lost if piece not in self.ages.lost_young]
            assert not old, ("lost, though each replica had it for long", old)
        elif self.policy == "messages":
            self._check_number(sum(one.end - one.base for one in lost))

    def _check_number(self, records: int) -> None:
        """Beside those that wait for a flush there are those that came while one was under way."""
        cuts = max(1, len(self._cuts))
        most = cuts * (MESSAGES + 3 * self._in_a_round)
        assert records <= most, ("more lost than the policy allows", records, most)

    @property
    def _in_a_round(self) -> int:
        """How many records were acknowledged in any such time, at most."""
        times = sorted(self.clients.acked_at.values())
        first = most = 0
        for last, time in enumerate(times):
            while time - times[first] > ms(2 * ROUND_MS):
                first += 1
            most = max(most, last - first + 1)
        return 3 * most
