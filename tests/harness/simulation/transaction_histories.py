"""One drawn life of a cluster whose clients write in transactions: everything that may happen to
processes and pipes, to the transaction coordinator too; then all is healed, every transaction must
end in bounded time, and what the logs hold must be what clients and readers were told.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from harness.logs.compaction import compact
from harness.simulation.broker import Life as BrokerLife
from harness.simulation.clients import Asked, fetch_request
from harness.simulation.histories import HEALS_WITHIN_MS, History
from harness.simulation.living import Life
from harness.simulation.transaction_scene import COMMITTED, FETCH, read_on
from harness.simulation.transaction_states import check_memory, state_records
from harness.simulation.transaction_truth import TransactionTruth
from harness.simulation.transactional import Refused, TransactionalClient
from harness.simulation.transactor import TransactionProcess
from tidelog.coordinator.transactions.state_partition import StatePartition
from tidelog.kernel.ids import BrokerId, Partition, TopicPartition
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.metadata.features import TRANSACTION_VERSION
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.transactions import STATE_TOPIC

FAULTS = (
    "kill",
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
    "transactor",
    "transactor",
    "zombie",
    "transactor_cut",
    "client",
    "compaction",
    "level",
    "topic",
)
NAMES = ("a", "b", "c")
VERSIONS = (1, 2)
"""Of transactions, as clients speak them."""
TRANSFORMER = "transformer"
INPUTS_AT_ONCE = 3
TIMEOUTS_MS = (400, 2_000, 60_000)
ENDS_WITHIN_MS = 70_000
"""Every time-out has come by then."""
COPIES = 0.2
LEVELS = (0, 2)
"""Of the feature `transaction.version`. Clients hear of it late, or never: brokers answer both
versions at every level."""


class TransactionHistory(History):
    """As any history; what `power` takes was written under the policy that loses nothing."""

    leaves_one_dead = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = self.draw = Random(seed + 3)
        self.kinds = rng.sample(FAULTS, rng.randint(1, len(FAULTS)))
        self.truth = TransactionTruth(self.cluster)
        self.members: list[TransactionalClient] = []
        self.zombies: list[TransactionProcess] = []
        self.cluster.configure("t", "unclean.leader.election.enable", "false")
        for topic, partitions in ((STATE_TOPIC, rng.choice([1, 3])), (OFFSETS_TOPIC, 1)):
            self.cluster.create(
                topic,
                *rng.sample(sorted(self.cluster.disks), 3),
                partitions=partitions,
                cleanup_policy="compact",
                min_insync_replicas="2",
                segment_bytes=str(rng.choice([16_384, 1 << 30])),
            )
        if "compaction" in self.kinds:
            self.cluster.witness.unwatched.add(STATE_TOPIC)
        self.keys = [("t", Partition(at)) for at in range(self.partitions)]

    def run(self) -> None:
        self.cluster.transactor.start()
        names = self.draw.sample(NAMES, self.draw.randint(1, len(NAMES)))
        for name in (*names, *self.draw.sample(names, self.draw.randint(0, 1))):
            self._member(name, self._writes)
        for _ in range(self.draw.choice([0, 1, 1, 2])):
            self._member(TRANSFORMER, self._transforms)
        super().run()
        self.check()

    # -- clients

    def _member(self, name: str, life: Callable[[TransactionalClient], Life]) -> None:
        client = TransactionalClient(
            self.cluster,
            self.truth,
            name,
            rng=Random(self.draw.randrange(1 << 30)),
            timeout_ms=self.draw.choice(TIMEOUTS_MS),
            version=self.draw.choice(VERSIONS),
        )
        client.copies = COPIES
        self.members.append(client)
        client.live(self._lasting(client, life))

    def _lasting(
        self, client: TransactionalClient, life: Callable[[TransactionalClient], Life]
    ) -> Life:
        """Who is refused begins anew, as somebody else."""
        while not self.over:
            if client.rng.random() < 0.1:
                client.version = client.rng.choice(VERSIONS)
            try:
                yield from client.init()
                yield from life(client)
            except Refused:
                yield "wait", client.rng.uniform(1, 200)

    def _writes(self, client: TransactionalClient) -> Life:
        rng = client.rng
        while not self.over:
            keys = rng.sample(self.keys, rng.randint(1, len(self.keys)))
            yield from client.transaction(keys, committed=rng.random() < 0.7)
            if rng.random() < 0.3:
                yield "wait", rng.choice([rng.uniform(0, 50), rng.uniform(0, 700)])

    def _transforms(self, client: TransactionalClient) -> Life:
        """Inputs are numbers; which are done, the group's offset says."""
        rng = client.rng
        while not self.over:
            done = max(0, (yield from client.committed_offset()))
            if rng.random() < 0.2:
                yield "wait", rng.uniform(0, 700)
            following = done + rng.randint(1, INPUTS_AT_ONCE)
            lasting = [key for key in self.keys if key[0] == "t"]
            keys = rng.sample(lasting, rng.randint(1, len(lasting)))
            committed = rng.random() < 0.8
            yield from client.transaction(
                keys, committed=committed, offset=following, numbers=range(done, following)
            )

    def _client(self) -> None:
        """One of them dies; another one comes, under the same name."""
        client = self.draw.choice(self.members)
        client.dies()
        life = self._transforms if client.name == TRANSFORMER else self._writes
        self._member(client.name, life)

    def _read(self) -> None:
        key = self.rng.choice(self.keys)
        lives = [one for one in self.cluster.lives.values() if one.serving]
        broker = self._some_leader(key[1])
        if not lives or broker is None:
            return
        start = self.rng.choice([0, 0, 5, 20])
        request = fetch_request(*key, start, -1, -1)
        request.isolation_level = COMMITTED

        def done() -> None:
            if box[0].answer is not None:
                self.truth.read(key, start, box[0].answer.responses[0].partitions[0])

        box: list[Asked] = []
        ended = partial(self.cluster.timeline.after, 0, done)
        box.append(Asked(self.cluster.lives[broker], k01.API, FETCH, request, ended))

    # -- faults

    def _pick(self) -> BrokerId | None:
        """Now and then it is whoever leads something of the transactions'."""
        if self.draw.random() < 0.4:
            topic = self.draw.choice([STATE_TOPIC, OFFSETS_TOPIC])
            leader = self.cluster.view(topic).leader
            if leader in self.cluster.lives:
                return leader
        return super()._pick()

    def _transactor(self) -> None:
        self.cluster.transactor.kill()

    def _zombie(self) -> None:
        """It stands still; its successor is started, and it goes on beside that."""
        transactor = self.cluster.transactor
        if transactor.process.paused or not transactor.process.alive:
            return
        zombie = transactor.pause()
        self.zombies.append(zombie)

        def succeeded() -> None:
            if transactor.process is zombie and zombie.alive:
                transactor.start()
            for life in list(self.cluster.lives.values()):
                if self.draw.random() < 0.5:
                    self.cluster.transactions.connect(life)

        self.cluster.timeline.after(self.draw.choice([5, 300]), succeeded)
        self._soon(lambda: transactor.resume(zombie))

    def _transactor_cut(self) -> None:
        broker = self.draw.choice(sorted(self.cluster.disks))
        self.cluster.transactions.cut(broker)
        self._soon(self._transactor_mend)

    def _transactor_mend(self) -> None:
        self.cluster.transactions.mend_all(breaks=lambda: self.draw.random() < 0.5)

    def _power(self) -> None:
        """As the policy that forces out what is acknowledged has it: nothing of that is lost."""
        broker = self._pick()
        if broker is not None:
            self.cluster.lives[broker].flush()
            self.cluster.lose_power(broker, Random(self.draw.random()))
            self._soon(lambda: self._start(broker))

    def _level(self) -> None:
        """An operator raises or lowers the version of transactions while they run."""
        lives = [one for one in self.cluster.lives.values() if one.serving and not one.paused]
        if lives:
            life, level = self.draw.choice(lives), self.draw.choice(LEVELS)
            self.cluster.begin_set_level(life, TRANSACTION_VERSION, level)

    def _topic(self) -> None:
        """One comes, and is written to before everybody has heard of it; an earlier one goes."""
        lives = [one for one in self.cluster.lives.values() if one.serving and not one.paused]
        if not lives:
            return
        name, life = f"n{len(self.cluster.witness.unwatched)}", self.draw.choice(lives)
        self.cluster.witness.unwatched.add(name)
        replicas = self.draw.sample(sorted(self.cluster.disks), 3)
        self.cluster.begin_create(life, name, *replicas, min_insync_replicas="2")
        passing = [key for key in self.keys if key[0] != "t"]
        self.keys.append((name, Partition(0)))
        if len(passing) > 1:
            self._delete(life, self.draw.choice(passing))

    def _delete(self, life: BrokerLife, key: TopicPartition) -> None:
        self.keys.remove(key)
        self.truth.gone.add(key[0])
        self.cluster.begin_delete(life, key[0])

    def _compaction(self) -> None:
        """Of what the coordinator knows, in all replicas of some broker."""
        lives = [one for one in self.cluster.lives.values() if not one.paused]
        if lives:
            life = self.draw.choice(lives)
            for replica in [one for one in life.replicas if one.topic == STATE_TOPIC]:
                (directory,) = [one for one in life.logs.working if replica.key in one]
                replica.log.roll(0)
                compact(directory, replica.log, high_watermark=replica.high_watermark)

    def _move(self, moves: Random) -> None:
        """Any partition, the transactions' own too."""
        lives = [one for one in self.cluster.lives.values() if one.serving and not one.paused]
        topic = moves.choice(["t", "t", STATE_TOPIC, OFFSETS_TOPIC])
        everybody = sorted(self.cluster.disks)
        least = 1 if topic == "t" else 3
        target = moves.sample(everybody, moves.randint(least, min(4, len(everybody))))
        partition = moves.randrange(len(self.cluster.image.names[topic].partitions))
        if lives:
            cancels = moves.random() < 0.25
            life = moves.choice(lives)
            self.cluster.begin_reassign(
                life, *([] if cancels else target), topic=topic, partition=partition
            )

    # -- the end

    def heal(self) -> None:
        cluster = self.cluster
        cluster.transactions.mend_all()
        for zombie in self.zombies:
            cluster.transactor.resume(zombie)
        super().heal()
        cluster.transactions.mend_all()
        for zombie in self.zombies:
            cluster.transactor.resume(zombie)
        for topic in {topic for topic, _ in self.keys} - cluster.image.names.keys():
            self.truth.gone.add(topic)  # its creation got lost
        self.keys = [key for key in self.keys if key[0] not in self.truth.gone]
        cluster.until(lambda: all(one.is_over for one in self.members), within_ms=HEALS_WITHIN_MS)
        cluster.until(lambda: self._open == 0, within_ms=ENDS_WITHIN_MS)
        cluster.until(self._is_whole, within_ms=HEALS_WITHIN_MS)
        cluster.run(500)

    @property
    def _open(self) -> int:
        """Transactions that have not come to their end, as far as the coordinator knows."""
        machine = self.cluster.transactor.process.machine
        if machine is None or not all(place.is_open for place in self._places()):
            return -1
        return machine.open_transactions

    def _places(self) -> list[StatePartition]:
        machine = self.cluster.transactor.process.machine
        count = len(self.cluster.image.names[STATE_TOPIC].partitions)
        found = [] if machine is None else [machine.partition(Partition(at)) for at in range(count)]
        return [one for one in found if one is not None]

    def _is_whole(self) -> bool:
        names = self.cluster.image.names
        keys: list[TopicPartition] = [
            (name, Partition(at)) for name in names for at in range(len(names[name].partitions))
        ]
        return all(self._is_key_level(key) for key in keys)

    def _is_key_level(self, key: TopicPartition) -> bool:
        cluster, view = self.cluster, self.cluster.view(*key)
        everybody = set(view.replicas)
        if set(view.isr) != everybody or view.leader not in everybody or view.is_moving:
            return False
        if not all(one in cluster.lives and cluster.lives[one].serving for one in everybody):
            return False
        leader = cluster.replica(view.leader, *key).leader
        if leader is None or set(leader.in_sync) != everybody:
            return False
        replicas = [cluster.replica(one, *key) for one in view.replicas]
        ends = {one.log.end for one in replicas} | {one.high_watermark for one in replicas}
        return len(ends) == 1

    def check(self) -> None:
        if any(truth.lost for truth in self.cluster.witness.truths.values()):
            return  # the cluster says that committed records are lost: nothing more is promised
        for key in self.keys:
            read_on(self.clients, self.truth, key, 0)
        self.truth.check()
        self.truth.check_inputs(self._passed())
        self._check_memory()

    def _check_memory(self) -> None:
        for place in self._places():
            key = (STATE_TOPIC, place.index)
            leader = self.cluster.replica(self.cluster.view(*key).leader, *key)
            assert place.shard is not None
            check_memory(self.cluster, place.shard, state_records(leader))

    def _passed(self) -> int:
        reader, found = TransactionalClient(self.cluster, self.truth, "reader"), list[int]()

        def reads() -> Life:
            found.append((yield from reader.committed_offset()))

        reader.finish(reads())
        return max(0, found[0])
