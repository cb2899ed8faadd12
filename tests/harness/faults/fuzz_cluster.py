"""Drives every API of a live cluster of real processes with wrong requests, and watches it.

    PYTHONPATH=tests .venv/bin/python -m harness.faults.fuzz_cluster --seed 7 --requests 1000000

No process may die or be started again, none may grow without end, and a bystander that produces
with acks=all and consumes meanwhile must get an answer to everything and find all its records. The
seed is printed; what was said last before something went wrong is kept in files, which `--replay`
says again and `--shrink` makes few.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, Self

from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.faults.fuzz_attack import Plan, attack
from harness.faults.fuzz_frames import Said, replay, shrunk, written
from harness.faults.fuzz_values import Aims
from harness.processes.cluster import Cluster, until
from harness.processes.commands import TIDELOG
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board, memory_of_run
from tidelog.node.ipc.layout import Role, Word
from tidelog.tools.supervisor import proc
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.messages import k03_metadata as k03
from tidelog.wire.messages import k10_find_coordinator as k10
from tidelog.wire.messages import k18_api_versions as k18
from tidelog.wire.messages import k19_create_topics as k19
from tidelog.wire.records import iterate_batches, iterate_records
from tidelog.wire.registry import MODULES, api_for

BROKERS: Final = 3
ATTACKERS: Final = 2
ENDS_WITHIN_S: Final = 5.0
GROWTH_BYTES_MAX: Final = 256 << 20
"""Of one process."""
KEPT: Final = "kept"
_NAMES: Final = 9
"""Of groups, and of transactional ids."""
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}
_TOPICS: Final = {
    "fz-plain": {},
    "fz-compact": {
        "cleanup.policy": "compact",
        "segment.bytes": "8192",
        "min.cleanable.dirty.ratio": "0.01",
    },
    "fz-time": {"message.timestamp.type": "LogAppendTime"},
    "fz-zstd": {"compression.type": "zstd"},
}
_OF_KEPT: Final = {
    "min.insync.replicas": "2",
    "compression.type": "producer",
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "max.message.bytes": "1048588",
}
_WRONG: Final = (
    "Traceback",
    '"crashed"',
    "request_failed",
    "request_suspected",
    "process_died",
    "process_hung",
    "partition_offline",
    "storage_failed",
    "compaction_failed",
)
_LOOK_EVERY_S: Final = 0.2
_AFTER_S: Final = 1.0
_BYSTANDER_PAUSE_S: Final = 0.02


class WentWrong(AssertionError):  # noqa: N818 -- what the watch found, not how it failed
    """A process died, grew, or a bystander was not served."""


@dataclass(slots=True)
class Watch:
    """Looks at the processes of a cluster, and at what they log."""

    cluster: Cluster
    pids: dict[str, int] = field(default_factory=dict)
    rss: dict[str, int] = field(default_factory=dict)
    grown: dict[str, int] = field(default_factory=dict)
    read: dict[Path, int] = field(default_factory=dict)
    memory: list[str] = field(default_factory=list)

    @classmethod
    def begin(cls, cluster: Cluster) -> Self:
        made = cls(cluster)
        made.pids = made._living()
        made.rss = {name: proc.memory_of(pid).rss_bytes for name, pid in made.pids.items()}
        made.memory = sorted(memory_of_run(cluster.runs[-1].run_id))
        made.look_at_logs()
        return made

    def look(self) -> None:
        """WentWrong where something is not as it was."""
        logged = self.look_at_logs()
        if logged:  # a process that crashes says so just before it is gone: tell of both
            self.until_one_has_ended()
        living = self._living()  # without those whose slots are being written just now
        complaints = [
            f"{name} ended (pid {pid})"
            for name, pid in self.pids.items()
            if proc.is_gone(pid) or living.get(name, pid) != pid
        ]
        for name, pid in self.pids.items():
            self.grown[name] = proc.memory_of(pid).rss_bytes - self.rss[name]
        complaints += [
            f"{name} grew by {size >> 20} MiB"
            for name, size in self.grown.items()
            if size > GROWTH_BYTES_MAX
        ]
        complaints += logged
        if complaints:
            raise WentWrong("\n".join(complaints[:20]))

    def until_one_has_ended(self) -> None:
        """Or none does within a moment."""
        with contextlib.suppress(AssertionError):
            until(self._has_one_ended, "a process ends", ENDS_WITHIN_S)

    def _has_one_ended(self) -> bool:
        return any(map(proc.is_gone, self.pids.values()))

    def requests(self) -> int:
        """How many the brokers have begun."""
        return sum(slot[Word.REQUESTS] for slot in self._slots() if slot[Word.ROLE] == Role.BROKER)

    def _slots(self) -> list[Any]:
        with Board.open(board_name(self.cluster.runs[-1].run_id)) as board:
            slots = [board.read_slot(number) for number in range(board.slots)]
        return [slot for slot in slots if slot is not None]

    def _living(self) -> dict[str, int]:
        return {
            f"{Role(slot[Word.ROLE]).name.lower()}-{slot[Word.ID]}": slot[Word.PID]
            for slot in self._slots()
            if not proc.is_gone(slot[Word.PID])
        }

    def look_at_logs(self) -> list[str]:
        """Lines that should not be there, since the last look."""
        found = []
        for path in sorted((self.cluster.data / "logs").glob("*.log")):
            with path.open("rb") as file:
                file.seek(self.read.get(path, 0))
                text = file.read()
            end = text.rfind(b"\n") + 1
            self.read[path] = self.read.get(path, 0) + end
            lines = text[:end].decode(errors="replace").splitlines()
            found += [
                f"{path.name}: {line[:600]}" for line in lines if any(w in line for w in _WRONG)
            ]
        return found


class Bystander(threading.Thread):
    """Produces with acks=all and consumes, one request after the other, until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.worst_s = 0.0
        self.acknowledged: dict[int, bytes] = {}
        self.failure: BaseException | None = None
        self._brokers = bootstrap
        self._ended = threading.Event()

    def run(self) -> None:
        try:
            with RawClient(leader_of(self._brokers, KEPT)) as client:
                while not self._ended.wait(_BYSTANDER_PAUSE_S):
                    self._turn(client)
        except BaseException as failure:  # noqa: BLE001 -- `end` raises it where it is looked at
            self.failure = failure

    def _turn(self, client: RawClient) -> None:
        value = b"kept %d" % len(self.acknowledged)
        began = time.monotonic()
        row = produce(client, KEPT, batch_of(value))
        said = time.monotonic()
        assert row.error_code == 0, row
        self.acknowledged[row.base_offset] = value
        assert read(client, row.base_offset)[row.base_offset] == value
        self.worst_s = max(self.worst_s, said - began, time.monotonic() - said)

    def look(self) -> None:
        if self.failure is not None:
            raise WentWrong(f"the bystander was not served: {self.failure!r}") from self.failure

    def end(self) -> None:
        """All that was acknowledged is there."""
        self._ended.set()
        self.join()
        self.look()
        self.find_all(self._brokers)

    def find_all(self, bootstrap: str) -> None:
        """Nothing that was acknowledged is lost, or another one."""
        found: dict[int, bytes | None] = {}
        with RawClient(leader_of(bootstrap, KEPT)) as client:
            while len(found) < len(self.acknowledged):
                more = read(client, len(found))
                assert more, f"{len(found)} of {len(self.acknowledged)} records are there"
                found |= more
        assert found == self.acknowledged


def read(client: RawClient, offset: int) -> dict[int, bytes | None]:
    """Values by offset, from there on."""
    partition = k01.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    asked = k01.FetchTopic(topic=KEPT, partitions=[partition])
    request = k01.FetchRequest(max_wait_ms=1_000, min_bytes=1, max_bytes=1 << 20, topics=[asked])
    row = client.ask(k01.API, 11, request).responses[0].partitions[0]
    assert row.error_code == 0, row
    return {
        record.offset: record.value
        for _, batch in iterate_batches(row.records)
        for record in iterate_records(batch)
        if record.offset >= offset
    }


def leader_of(bootstrap: str, topic: str) -> str:
    with RawClient(bootstrap) as client:
        request = k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name=topic)])
        answer = client.ask(k03.API, 12, request)
    leader = answer.topics[0].partitions[0].leader_id
    return next(f"{one.host}:{one.port}" for one in answer.brokers if one.node_id == leader)


def advertised(bootstrap: str) -> tuple[tuple[int, int, int], ...]:
    """Every API key that the cluster serves, in every version that we can encode."""
    with RawClient(bootstrap) as client:
        rows = client.ask(k18.API, 2, k18.ApiVersionsRequest()).api_keys
    return tuple(
        (row.api_key, max(row.min_version, api_for(row.api_key).versions[0]), row.max_version)
        for row in rows
    )


def make_topics(bootstrap: str) -> Aims:
    """The topics that are aimed at, and one that nobody names."""
    wanted = [_topic(name, configs) for name, configs in _TOPICS.items()]
    topics = [*wanted, _topic(KEPT, _OF_KEPT)]
    with RawClient(bootstrap) as client:
        request = k19.CreateTopicsRequest(topics=topics, timeout_ms=9_000)
        made = client.ask(k19.API, 7, request).topics
    assert [row.error_code for row in made] == [0] * len(made), made
    return make_aims(bootstrap, {row.name: row.topic_id for row in made if row.name != KEPT})


def make_aims(bootstrap: str, topics: Mapping[str, bytes]) -> Aims:
    return Aims(
        topics=tuple(topics.items()),
        led=_led(bootstrap, topics),
        groups=_coordinated(bootstrap, 0, "fz-g"),
        transactions=_coordinated(bootstrap, 1, "fz-x"),
    )


def _led(
    bootstrap: str, topics: Mapping[str, bytes]
) -> tuple[tuple[tuple[str, bytes, int], ...], ...]:
    """Partitions by their leader."""
    with RawClient(bootstrap) as client:
        asked = [k03.MetadataRequestTopic(name=name) for name in topics]
        rows = client.ask(k03.API, 12, k03.MetadataRequest(topics=asked)).topics
    places = [
        (one.leader_id, (row.name, topics[row.name], one.partition_index))
        for row in rows
        for one in row.partitions
    ]
    return tuple(tuple(at for who, at in places if who == broker) for broker in range(BROKERS))


def _coordinated(bootstrap: str, kind: int, prefix: str) -> tuple[tuple[str, ...], ...]:
    """Names by the broker that coordinates them."""
    names = [f"{prefix}{number}" for number in range(_NAMES)]
    found: list[Any] = []

    def are_led() -> bool:
        with RawClient(bootstrap) as client:
            request = k10.FindCoordinatorRequest(key_type=kind, coordinator_keys=names)
            found[:] = client.ask(k10.API, 4, request).coordinators
        return not any(row.error_code for row in found)

    until(are_led, f"each of {prefix} has a coordinator")
    by_broker = [tuple(row.key for row in found if row.node_id == one) for one in range(BROKERS)]
    return tuple(some or tuple(names) for some in by_broker)


def _topic(name: str, configs: dict[str, str]) -> k19.CreatableTopic:
    rows = [k19.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
    partitions = 1 if name == KEPT else 2
    return k19.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=BROKERS,
        assignments=[],
        configs=rows,
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run came to."""

    sent: int
    begun: int
    answers: int
    bystander: int
    worst_ms: float
    grown_mib: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.sent:,} frames sent, {self.begun:,} requests begun, "
            f"{self.answers:,} answers read in {self.seconds:.0f} s; "
            f"bystander: {self.bystander:,} records, worst answer {self.worst_ms:.0f} ms; "
            f"growth at most {self.grown_mib} MiB"
        )


@dataclass(frozen=True, slots=True)
class Attacked:
    """Which cluster is attacked: of these sources, or of others."""

    sources: str | None = None
    """Source roots, as PYTHONPATH has them."""
    program: Sequence[str] = TIDELOG

    @contextmanager
    def cluster(self, folder: Path) -> Iterator[Cluster]:
        environment = {} if self.sources is None else {"PYTHONPATH": self.sources}
        with Cluster(
            folder,
            brokers=BROKERS,
            settings=SETTINGS,
            program=self.program,
            environment=environment,
        ) as cluster:
            yield cluster


OURS: Final = Attacked()


def run(folder: Path, seed: int, requests: int, attacked: Attacked = OURS) -> Figures:
    """Attack a cluster of its own; WentWrong says what, and the frames are in `folder` then."""
    folder.mkdir(parents=True, exist_ok=True)
    with attacked.cluster(folder / "cluster") as cluster:
        aims = make_topics(cluster.bootstrap)
        (folder / "aims.json").write_text(
            json.dumps([[name, topic.hex()] for name, topic in aims.topics]), encoding="utf-8"
        )
        plans = _plans(cluster, aims, folder, seed, requests)
        watch, bystander = Watch.begin(cluster), Bystander(cluster.bootstrap)
        began = time.monotonic()
        bystander.start()
        _attack(plans, watch, bystander)
        seconds = time.monotonic() - began
        bystander.end()
        watch.look()
        assert sorted(memory_of_run(cluster.runs[-1].run_id)) == watch.memory
        begun = watch.requests()
        _start_again(cluster, bystander, watch)
        said = [json.loads((folder / f"{plan.seed}.json").read_text()) for plan in plans]
        assert sum(one["sent"] for one in said) >= requests, "an attacker failed"
        return Figures(
            sent=sum(one["sent"] for one in said),
            begun=begun,
            answers=sum(one["answers"] for one in said),
            bystander=len(bystander.acknowledged),
            worst_ms=bystander.worst_s * 1_000,
            grown_mib=max(watch.grown.values()) >> 20,
            seconds=seconds,
        )


def _start_again(cluster: Cluster, bystander: Bystander, before: Watch) -> None:
    """After a kill: whatever was written meanwhile is read, and groups and transactions are."""
    cluster.kill_everything()
    cluster.start()
    complaints = before.look_at_logs()
    if complaints:
        raise WentWrong("\n".join(complaints))
    watch = Watch.begin(cluster)
    make_aims(cluster.bootstrap, {})
    bystander.find_all(cluster.bootstrap)
    time.sleep(_AFTER_S)
    watch.look()


def _plans(cluster: Cluster, aims: Aims, folder: Path, seed: int, requests: int) -> list[Plan]:
    apis = advertised(cluster.bootstrap)
    assert {key for key, _, _ in apis} <= set(MODULES), apis
    return [
        Plan(
            seed=f"{seed}-{number}",
            addresses=tuple(cluster.bootstrap.split(",")),
            apis=apis,
            aims=aims,
            requests=-(-requests // ATTACKERS),
            folder=folder,
        )
        for number in range(ATTACKERS)
    ]


def _attack(plans: Sequence[Plan], watch: Watch, bystander: Bystander) -> None:
    context = get_context("spawn")
    stop, went_wrong = context.Event(), context.Event()
    processes = [context.Process(target=attack, args=(plan, stop, went_wrong)) for plan in plans]
    for process in processes:
        process.start()
    try:
        while not all((plan.folder / f"{plan.seed}.json").exists() for plan in plans):
            time.sleep(_LOOK_EVERY_S)
            watch.look()
            if bystander.failure is not None:
                watch.until_one_has_ended()  # which would be why
                watch.look()
            bystander.look()
        time.sleep(_AFTER_S)  # timers and delayed answers of what was said last
        watch.look()
    except BaseException:
        went_wrong.set()
        raise
    finally:
        stop.set()
        for process in processes:
            process.join()


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="draw the same requests again; default: random")
    parser.add_argument("--requests", type=int, default=200_000, help="frames to send")
    parser.add_argument("--folder", type=Path, help="keep everything here; default: a new folder")
    parser.add_argument("--sources", help="attack a cluster of these source roots, as PYTHONPATH")
    parser.add_argument("--replay", type=Path, help="say the frames of this run's folder again")
    parser.add_argument("--shrink", type=Path, help="find few of its frames that do harm")
    chosen = parser.parse_args(words)
    seed = random.randrange(2**32) if chosen.seed is None else chosen.seed
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix=f"fuzz-{seed}-"))
    attacked = Attacked(chosen.sources)
    if chosen.replay is not None:
        return _replay(chosen.replay, folder, attacked)
    if chosen.shrink is not None:
        return _shrink(chosen.shrink, folder, attacked)
    _say(f"seed {seed}, {chosen.requests:,} frames, in {folder}")
    try:
        figures = run(folder, seed, chosen.requests, attacked)
    except AssertionError as wrong:
        _say(f"seed {seed}: {wrong}\nthe last frames are in {folder}")
        return 1
    _say(f"seed {seed}: {figures}")
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _harm(some: Sequence[Said], source: Path, folder: Path, attacked: Attacked) -> str | None:
    """What these frames do to a cluster of its own."""
    with attacked.cluster(Path(tempfile.mkdtemp(dir=folder)) / "cluster") as cluster:
        aims = make_topics(cluster.bootstrap)
        watch = Watch.begin(cluster)
        replay(cluster.bootstrap.split(","), some, source, aims)
        time.sleep(_AFTER_S)
        try:
            watch.look()
        except WentWrong as wrong:
            return str(wrong)
    return None


def _replay(source: Path, folder: Path, attacked: Attacked) -> int:
    frames = written(source)
    harm = _harm(frames, source, folder, attacked)
    _say(harm or f"{len(frames)} frames do no harm")
    return int(harm is not None)


def _shrink(source: Path, folder: Path, attacked: Attacked) -> int:
    def does_harm(some: Sequence[Said]) -> bool:
        harm = _harm(some, source, folder, attacked)
        _say(f"{len(some)} frames: {'harm' if harm else 'no harm'}")
        return harm is not None

    frames = written(source)
    if not does_harm(frames):
        return 0
    for connection, broker, frame in shrunk(frames, does_harm):
        _say(json.dumps([connection, broker, frame.hex()]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
