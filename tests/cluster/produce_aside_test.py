"""A batch that takes half a minute to be packed: the broker serves everybody else meanwhile."""

from pathlib import Path

import pytest

from harness.clients.produce_raw import VERSION, batch_of, produce, produce_request
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce
from tidelog.wire.records import Record, build_batch

pytestmark = pytest.mark.slow

HARDEST = {"compression.type": "zstd", "compression.zstd.level": "22"}
WORDS = b"".join(b"%x " % (number * 2_654_435_761) for number in range(2_000))


def test_nobody_waits_for_another_s_batch_to_be_packed(tmp_path: Path) -> None:
    """And a broker that stops does not, either."""
    with Cluster(tmp_path) as cluster:
        slow, quick = cluster.create_topic(configs=HARDEST), cluster.create_topic()
        large = [Record(at, 1_700_000_000_000, None, WORDS + b"%d" % at, ()) for at in range(1_500)]
        batch = build_batch(large, codec=Codec.GZIP)
        with RawClient(cluster.bootstrap) as first, RawClient(cluster.bootstrap) as second:
            first.start(k00_produce.API, VERSION, produce_request(slow, batch))
            for _ in range(20):
                assert produce(second, quick, batch_of(b"small")).error_code == ErrorCode.NONE
            first.sock.settimeout(0)
            with pytest.raises(BlockingIOError):
                first.sock.recv(1)
        cluster.stop()
