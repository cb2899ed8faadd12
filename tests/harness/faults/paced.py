"""A load with figures: so many records at a steady rate, so many of them acknowledged, and the cut.

The scenario decides on acknowledgements, not on time: who sends does not wait for answers, and who
hears stops at the number that the scenario names. The command that takes the power runs in this
process, for the time another one takes to start would be part of the scenario.
"""

import contextlib
import io
import json
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.clients.produce_raw import VERSION, batch_of, produce_request
from harness.clients.raw_socket import RawClient, request_bytes
from harness.faults.chaos import log_bytes
from harness.faults.power import Sender
from harness.processes.cluster import Cluster
from tidelog.kernel.ids import ZERO_UUID
from tidelog.tools.cli import run
from tidelog.wire.checkpoints import PARTITION_METADATA, decode_partition_metadata
from tidelog.wire.errors import WireError
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce
from tidelog.wire.records import check_crc, iterate_batches


@dataclass(slots=True)
class PacedSender(Sender):
    """Sends records that hold their number, `rate` a second and never faster, up to `most`.

    Nobody hears the answers but whoever calls `hear`.
    """

    rate: int = 1_000
    most: int = 1_000
    _raw: RawClient | None = None
    _connected: threading.Event = field(default_factory=threading.Event)

    def hear(self, acked: int) -> None:
        """The next answers, until so many records are acknowledged, each at its place."""
        assert self._connected.wait(10)
        assert self._raw is not None
        for number in range(len(self.acked), acked):
            frame = memoryview(self._raw.receive_frame())
            correlation, answer = decode_response(k00_produce.API, VERSION, frame)
            (row,) = answer.responses[0].partition_responses
            assert (correlation, row.error_code, row.base_offset) == (number, 0, number)
            self.acked.append((number, b"%d" % number))

    def _run(self) -> None:
        with contextlib.suppress(OSError), RawClient(self.address()) as self._raw:
            self._connected.set()
            self._send(self._raw)
            self._stop.wait()

    def _send(self, raw: RawClient) -> None:
        due = time.monotonic()
        for number in range(self.most):
            # What the machine kept it from sending is not made up for: a rate is a limit.
            due = max(due + 1 / self.rate, time.monotonic())
            if self._stop.wait(due - time.monotonic()):
                return
            request = produce_request(self.topic, batch_of(b"%d" % number))
            raw.send(request_bytes(k00_produce.API, VERSION, request, number))
            self.sent = number + 1


def command_here(cluster: Cluster, *words: str, may: Collection[int] = (0,)) -> Any:
    """A command that ends with one of these codes, at once: its document."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        code = run([*words, "--data", str(cluster.data), "--json"])
    assert code in may, (words, code, out.getvalue())
    return json.loads(out.getvalue())


@dataclass(frozen=True, slots=True)
class Cut:
    """What is known of a topic's one partition at the moment when all of it lost power."""

    sender: PacedSender
    reported: Sequence[int]
    """Up to which offset each broker said, a moment before, that it is on stable storage."""
    took_ms: float
    """As long as the slowest of the latest flushes until then."""
    windows: Sequence[Mapping[str, int] | None]
    """What the command told of each replica; None: it lost nothing."""
    kept: Sequence[int]
    """Where what each replica's files hold ends: whole batches, without a hole."""
    is_named: Sequence[bool]
    """Whether they still say whose log it is. One that does not may be another topic's, and counts
    only where the cluster counts on that replica."""

    @property
    def left(self) -> range:
        """Where the log may end once all are back."""
        named = [end for end, is_named in zip(self.kept, self.is_named, strict=True) if is_named]
        return range(max(named, default=0), max(self.kept) + 1)

    @property
    def told_lost(self) -> int:
        """How many records the command told that this costs, once the longest replica leads."""
        ends = [
            (kept, kept) if window is None else (window["end"], window["left"])
            for kept, window in zip(self.kept, self.windows, strict=True)
        ]
        return max(end for end, _ in ends) - max(left for _, left in ends)


def cut_power(cluster: Cluster, topic: str, *, acked: int, sends: int, seed: int) -> Cut:
    """From all of it, as soon as so many records are acknowledged."""
    sender = PacedSender(cluster, topic, most=sends)
    with sender.sending():
        sender.hear(acked // 2)
        rows = disk_rows(cluster, topic)
        sender.hear(acked)
        told = command_here(cluster, "chaos", "power-loss", "--all", "--seed", str(seed))
    brokers = told["processes"][: cluster.brokers]
    assert [row["role"] for row in told["processes"]] == ["broker"] * len(brokers) + ["coordinator"]
    return Cut(
        sender,
        [row["durable_offset"] for row in rows],
        max(row["last_flush"]["took_ms"] if row["last_flush"] else 0.0 for row in rows),
        [window_of(broker, topic) for broker in brokers],
        [kept_log(cluster, broker["id"], topic)[0] for broker in brokers],
        [is_named(cluster, broker["id"], topic) for broker in brokers],
    )


def disk_rows(cluster: Cluster, topic: str) -> list[Any]:
    """What `tidelog disk` shows of it, broker by broker."""
    brokers = command_here(cluster, "disk", f"{topic}:0")["brokers"]
    return [row for broker in brokers for row in broker["partitions"]]


def window_of(process: Mapping[str, Any], topic: str) -> Mapping[str, int] | None:
    return next((row for row in process["windows"] if row["topic"] == topic), None)


def is_named(cluster: Cluster, broker: int, topic: str) -> bool:
    path = cluster.data / f"broker-{broker}/log0/{topic}-0" / PARTITION_METADATA
    content = path.read_bytes() if path.exists() else None
    return decode_partition_metadata(content) != ZERO_UUID


def kept_log(cluster: Cluster, broker: int, topic: str) -> tuple[int, bytes]:
    """What a reader that knows nothing of the cut finds in the files of a dead broker: where it
    ends, and its bytes."""
    log = log_bytes(cluster, broker, topic, 0)
    end, size = 0, 0
    with contextlib.suppress(WireError):
        for header, batch in iterate_batches(memoryview(log)):
            if header.base_offset != end or not check_crc(batch):
                break
            end, size = header.next_offset, size + len(batch)
    return end, log[:size]
