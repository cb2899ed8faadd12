"""Operations and faults drawn together against a cluster under load, and what must be true then."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

from harness.faults.chaos import (
    BROKERS,
    Faults,
    Load,
    acked_in,
    controller_pid,
    drawn,
    log_bytes,
    wrong_on,
)
from harness.processes.cluster import Cluster
from harness.processes.operations import EBB, PARTITIONS, SWELL, TIDES, Operations, Reader
from tidelog.coordinator.runtime.snapshots import decode_batch
from tidelog.kernel.ids import BrokerId, Partition
from tidelog.node.log.directory_names import key_of
from tidelog.node.metadata.digest import digest
from tidelog.node.metadata.image import MetadataImage
from tidelog.tools.log_files.data_folder import Folder, open_folder
from tidelog.tools.log_files.metadata_replay import NAME as METADATA
from tidelog.tools.log_files.metadata_replay import good_batches
from tidelog.tools.log_files.read_only import ReadOnlyDirectory
from tidelog.wire.log_files import LOG_SUFFIX, file_name, offsets_with_suffix

LOADS = 2


class Soak:
    """What is done to the cluster, and when: the history is printed where something is wrong."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.history: list[str] = []
        self.done = Counter[str]()
        self._cluster = cluster
        self._rng = Random(seed)
        self._began = time.monotonic()
        self.operations = Operations(cluster, self._rng, BROKERS, self._tell)
        self._faults = Faults(cluster, self._rng)
        self._steps: dict[str, Callable[[], None]] = {
            **self.operations.kinds,
            **{kind: self._fault(kind) for kind in self._faults.kinds},
            "something while the coordinator dies": self._coordinator_dies,
            "roll while the coordinator dies": self._without_it(self.operations.roll),
            "remove while the coordinator dies": self._without_it(self.operations.remove),
            "something while a broker dies": self._broker_dies,
            "make again while a broker is dead": self._make_again_without_one,
            "delete while a broker is dead": self._delete_without_one,
        }

    def run(self, seconds: float, *, flat_out: bool) -> list[str]:
        """What was wrong in the end."""
        self.operations.begin()
        loads = [
            Load(self._cluster.bootstrap, TIDES, PARTITIONS, f"load-{n}", flat_out=flat_out)
            for n in range(LOADS)
        ]
        reader = Reader(self._cluster.bootstrap, TIDES, PARTITIONS)
        reader.start()
        for load in loads:
            load.start()
        try:
            self._carry_out("add", self.operations.add)  # so that there is where to move to
            for kind in drawn(self._rng, self._steps, seconds):
                self._carry_out(kind, self._steps[kind])
        finally:
            self._faults.close()
            for load in loads:
                load.finish()
            acked = acked_in(PARTITIONS, loads)
            reader.finish([max(offsets.values(), default=-1) + 1 for offsets in acked])
        return [*reader.wrong, *wrong_reads(reader, acked), *self._wrong_at_rest(loads)]

    def _carry_out(self, kind: str, step: Callable[[], None]) -> None:
        self._tell(kind)
        step()
        self.done[kind] += 1
        self._last(0.1, 0.5)

    def _tell(self, what: str) -> None:
        self.history.append(f"{time.monotonic() - self._began:6.1f} {what}")

    def _last(self, least_s: float, most_s: float) -> None:
        """How long things stay as they are is drawn: there is nothing to wait for."""
        time.sleep(self._rng.uniform(least_s, most_s))

    def _fault(self, kind: str) -> Callable[[], None]:
        def step() -> None:
            broker = self._rng.randrange(BROKERS)
            self._tell(f"  at {broker}")
            self._faults.kinds[kind](broker)

        return step

    def _coordinator_dies(self) -> None:
        pid = controller_pid(self._cluster)
        self._while_something(lambda: os.kill(pid, signal.SIGKILL))

    def _without_it(self, operation: Callable[[], None]) -> Callable[[], None]:
        def step() -> None:
            pid = controller_pid(self._cluster)
            self._while(operation, lambda: os.kill(pid, signal.SIGKILL), most_s=3.0)

        return step

    def _broker_dies(self) -> None:
        broker = self._rng.choice(self.operations.brokers)
        self._tell(f"  broker {broker}")
        pid = self._cluster.broker_pid(broker)
        self._while_something(lambda: os.kill(pid, signal.SIGKILL))
        self._faults.start_dead(broker)

    def _while_something(self, kill: Callable[[], None]) -> None:
        kind = self._rng.choice(list(self.operations.quick))
        self._tell(f"  {kind}")
        self._while(self.operations.quick[kind], kill, most_s=0.03)

    def _while(
        self, operation: Callable[[], None], kill: Callable[[], None], *, most_s: float
    ) -> None:
        """The moment is drawn, from before the first request to after the last answer."""
        delay_s = self._rng.uniform(0, most_s)
        self._tell(f"  the kill after {delay_s * 1000:.1f} ms")
        timer = threading.Timer(delay_s, kill)
        timer.start()
        try:
            operation()
        finally:
            timer.join()

    def _make_again_without_one(self) -> None:
        broker = self._kill_one_that_has_it()
        self.operations.make_again()
        self._bring_back(broker)

    def _delete_without_one(self) -> None:
        broker = self._kill_one_that_has_it()
        self.operations.delete()
        self._bring_back(broker)
        self.operations.make()

    def _kill_one_that_has_it(self) -> int:
        broker = self._rng.choice(self.operations.replicas_of(EBB)[0])
        self._tell(f"  without {broker}")
        self._cluster.done("broker", "kill", str(broker))
        return broker

    def _bring_back(self, broker: int) -> None:
        """It deletes what is left of the topic before it takes clients."""
        self._cluster.done("broker", "start", str(broker))
        wrong = wrong_places(open_folder(Path(self._cluster.data)))
        left = [line for line in wrong if line.startswith(f"broker {broker} still has {EBB}-")]
        assert left == []

    # -- what must be true

    def _wrong_at_rest(self, loads: list[Load]) -> list[str]:
        """Everything ends, everyone stops, and the files are compared."""
        operations = self.operations
        operations.settle()
        for topic in (TIDES, SWELL, EBB):
            self._cluster.done("wait", "isr", topic, "--timeout", "60")
        grown = len(operations.replicas_of(SWELL))
        self._cluster.stop()
        folder = open_folder(Path(self._cluster.data))
        wrong = [failure for load in loads for failure in load.failed]
        if grown < operations.swell:
            wrong.append(f"{SWELL} has {grown} partitions, {operations.swell} were promised")
        if folder.image.names[TIDES].configs.get("retention.ms") not in operations.settings:
            wrong.append(f"the setting is none of {operations.settings}")
        return [
            *wrong,
            *wrong_replicas(self._cluster, folder, loads),
            *wrong_places(folder),
            *wrong_images(self._cluster),
        ]


def wrong_reads(reader: Reader, acked: list[dict[bytes, int]]) -> Iterator[str]:
    """What was acknowledged at an offset and is not what was read there."""
    for partition, offsets in enumerate(acked):
        read = reader.read[partition]
        missing = [value for value, at in offsets.items() if read[at : at + 1] != [value]]
        if missing:
            yield f"partition {partition}: {len(missing)} not read, one is {missing[0]!r}"


def wrong_replicas(cluster: Cluster, folder: Folder, loads: list[Load]) -> Iterator[str]:
    """Whoever has a replica has every batch of it, byte for byte the same."""
    acked = acked_in(PARTITIONS, loads)
    for topic in folder.image.topics.values():
        for partition, view in enumerate(topic.partitions):
            logs = {one: log_bytes(cluster, one, topic.name, partition) for one in view.replicas}
            wanted = acked[partition] if topic.name == TIDES else {}
            yield from _wrong_logs(f"{topic.name}-{partition}", logs, wanted)


def _wrong_logs(
    place: str, logs: Mapping[BrokerId, bytes], acked: Mapping[bytes, int]
) -> Iterator[str]:
    if len(set(logs.values())) != 1:
        sizes = {one: len(log) for one, log in logs.items()}
        yield f"{place}: the replicas' bytes differ: {sizes}"
    for broker, log in logs.items():
        yield from wrong_on(f"{place}, broker {broker}", log, acked)


def wrong_places(folder: Folder) -> Iterator[str]:
    """Nobody keeps what was moved away from it, or deleted."""
    assigned = {
        (broker, (topic.name, Partition(number)))
        for topic in folder.image.topics.values()
        for number, view in enumerate(topic.partitions)
        for broker in view.replicas
    }
    kept = [
        (broker, entry.name)
        for broker, directories in folder.brokers.items()
        for directory in directories
        for entry in directory.iterdir()
    ]
    for broker, name in sorted(kept):
        key = key_of(name)
        if key is not None and (broker, key) not in assigned:
            yield f"broker {broker} still has {name}"


def wrong_images(cluster: Cluster) -> Iterator[str]:
    """Every image that anyone had at its end is what the log says up to there."""
    told = [json.loads(line) for line in cluster.logs().splitlines() if '"event": "image"' in line]
    wanted = {one["offset"] for one in told}
    digests = {image.offset: digest(image) for image in replayed(cluster) if image.offset in wanted}
    for one in told:
        if digests.get(one["offset"]) != one["digest"]:
            yield (
                f"the {one['holder']} of {one['process']} had another image at {one['offset']} "
                "than its log says"
            )
    if not any(one["holder"] == "controller" for one in told):
        yield "the controller did not tell its image"


def replayed(cluster: Cluster) -> Iterator[MetadataImage]:
    """The image, after each record of the metadata log; always the same one."""
    top = ReadOnlyDirectory(str(Path(cluster.data) / "coordinator"))
    directory = top.directory(METADATA)
    image = MetadataImage()
    for base in sorted(offsets_with_suffix(directory.names(), LOG_SUFFIX)):
        file = directory.open(file_name(base, LOG_SUFFIX))
        for _, batch in good_batches(file, base):
            for record in decode_batch(batch, place=file.name):
                image.replay(record)
                yield image
        file.close()
