"""Power losses while brokers compact: files come and go all the time, and inodes are used again.
What was flushed is there all the same, so every log can be read."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest

from harness.clients.produce_raw import produce
from harness.clients.raw_socket import RawClient
from harness.faults.power import Sender, create, power_loss, start_all
from harness.processes.cluster import Cluster, until
from tidelog.wire.records import Record, build_batch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]

LOSSES, LOSSES_NIGHTLY = 3, 60
ACKED = 150
KEYS = 30
SETTINGS = {
    "log.segment.bytes": "16384",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "200",
    "log.dirs": "near,far",
    "flush.policy": "messages",
    "log.flush.interval.messages": "7",
}


@dataclass(slots=True)
class KeySender(Sender):
    """Sends the same few keys over and over."""

    def one(self, raw: RawClient) -> bool:
        self.sent += 1
        row = Record(0, self.sent, b"%d" % (self.sent % KEYS), bytes(700), ())
        answer = produce(raw, self.topic, build_batch([row]))
        if not answer.error_code:
            self.acked.append((answer.base_offset, b""))
        return not answer.error_code


@pytest.fixture
def compacting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("compacting")
    with Cluster(folder, brokers=3, settings=SETTINGS) as running:
        create(running, "keyed", {"cleanup.policy": "compact"})
        running.done("wait", "isr", "keyed")
        yield running


def events(cluster: Cluster) -> list[dict[str, object]]:
    logs = (cluster.data / f"logs/broker-{broker}.log" for broker in range(cluster.brokers))
    lines = [line for log in logs for line in log.read_text().splitlines()]
    return [json.loads(line) for line in lines if line.startswith("{")]


def has_compacted(cluster: Cluster) -> bool:
    logs = (cluster.data / f"logs/broker-{broker}.log" for broker in range(cluster.brokers))
    return any('"compacted"' in log.read_text() for log in logs)


def test_no_power_loss_takes_what_brokers_that_compact_have_flushed(
    compacting: Cluster, *, nightly: bool
) -> None:
    rng = Random(70)
    for _ in range(LOSSES_NIGHTLY if nightly else LOSSES):
        sender = KeySender(compacting, "keyed")
        with sender.sending():
            sender.wait_for_acks(ACKED)
            until(lambda: has_compacted(compacting), "a broker to compact")
            power_loss(compacting, "--all", "--seed", str(rng.randrange(1 << 30)))
        start_all(compacting)
        compacting.done("wait", "isr", "keyed", "--timeout", "30")
    found = events(compacting)
    assert [one for one in found if one["event"] in {"partition_offline", "crashed"}] == []
