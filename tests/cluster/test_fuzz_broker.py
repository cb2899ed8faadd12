"""Ten seconds of wrong requests at a real broker: it lives, remembers nothing, and others work."""

import contextlib
import threading
import time
from pathlib import Path
from random import Random

import pytest

from harness.cluster import Cluster
from harness.fetch_raw import fetch_all
from harness.fuzz import Fuzz
from harness.produce_raw import batch_of, produce
from harness.raw import RawClient
from tidelog.node.api.dispatch import routes
from tidelog.wire.messages import k03_metadata
from tidelog.wire.messages.k64_unregister_broker import API as UNREGISTER

pytestmark = pytest.mark.slow

THREADS = 3
LASTS_S = 10.0
GROWTH_BYTES_MAX = 64 << 20


class Attacker(threading.Thread):
    """Connects, says a few wrong things, reads some of the answers or none, and leaves."""

    def __init__(self, bootstrap: str, fuzz: Fuzz, random: Random) -> None:
        super().__init__(daemon=True)
        self.frames = 0
        self.answers = 0
        self._address = bootstrap
        self._fuzz = fuzz
        self._random = random

    def run(self) -> None:
        deadline = time.monotonic() + LASTS_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, EOFError), RawClient(self._address) as raw:
                raw.sock.settimeout(0.05)
                self._attack(raw)

    def _attack(self, raw: RawClient) -> None:
        reads = self._random.random() < 0.8
        for _ in range(self._random.randrange(1, 30)):
            raw.send(self._fuzz.frame())
            self.frames += 1
            if reads:
                raw.receive_frame()
                self.answers += 1


def test_a_broker_survives_wrong_requests_and_grows_by_nothing(tmp_path: Path) -> None:
    all_routes = routes().routes.values()
    # To forget the only broker is a right request, which others notice.
    apis = [(one.api, one.versions) for one in all_routes if one.api is not UNREGISTER]
    with Cluster(tmp_path) as cluster:
        kept = cluster.create_topic("kept")
        aimed = cluster.create_topic(partitions=2)
        aims = [(aimed, id_of(cluster, aimed))]
        pid, coordinator = cluster.broker_pid(0), cluster.process("coordinator")["pid"]
        with RawClient(cluster.bootstrap) as bystander:
            assert produce(bystander, kept, batch_of(b"before")).base_offset == 0
            before = cluster.broker_rss_bytes(0)
            attackers = []
            for seed in range(THREADS):
                random = Random(seed)
                fuzz = Fuzz(apis, random)
                fuzz.topics += aims
                attackers.append(Attacker(cluster.bootstrap, fuzz, random))
            for attacker in attackers:
                attacker.start()
            count = 1
            while any(attacker.is_alive() for attacker in attackers):
                assert produce(bystander, kept, batch_of(b"%d" % count)).base_offset == count
                count += 1
                time.sleep(0.02)
            grown = cluster.broker_rss_bytes(0) - before
            values = [row.value for row in fetch_all(bystander, kept)]
            assert values == [b"before", *(b"%d" % number for number in range(1, count))]
        assert sum(attacker.answers for attacker in attackers) > 500
        assert (cluster.broker_pid(0), cluster.process("coordinator")["pid"]) == (pid, coordinator)
        assert grown < GROWTH_BYTES_MAX, f"{grown >> 20} MiB"
        logs = cluster.logs()
        assert "Traceback" not in logs, logs
        assert '"crashed"' not in logs, logs
        # What it wrote meanwhile can be read again by the next start.
        cluster.stop()
        cluster.start()
        with RawClient(cluster.bootstrap) as raw:
            assert len(fetch_all(raw, kept)) == count


def id_of(cluster: Cluster, topic: str) -> bytes:
    with RawClient(cluster.bootstrap) as raw:
        request = k03_metadata.MetadataRequest(
            topics=[k03_metadata.MetadataRequestTopic(name=topic)]
        )
        found = raw.ask(k03_metadata.API, 12, request).topics[0].topic_id
    assert isinstance(found, bytes)
    return found
