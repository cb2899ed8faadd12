"""Apache Kafka's own tool reads the batches that are encoded by the column, in every codec."""

from pathlib import Path

import pyarrow as pa
import pytest

from harness.clients.tools_jvm import run_tool
from harness.kafka.jars import need_kafka
from tidelog.spark.arrow import Encoder
from tidelog.wire.codecs import Codec
from tidelog.wire.records import Origin, place_batch

TOOL = "org.apache.kafka.tools.DumpLogSegments"
ROWS = 300

pytestmark = pytest.mark.slow


def test_kafka_reads_every_row(tmp_path: Path) -> None:
    need_kafka()
    table = pa.RecordBatch.from_pydict(
        {
            "key": [None if row % 3 == 0 else f"key-{row}" for row in range(ROWS)],
            "value": [f"value-{row}" * (row % 40) for row in range(ROWS)],
            "headers": [[{"key": f"h{row}", "value": b"x"}] * (row % 2) for row in range(ROWS)],
        }
    )
    log = tmp_path / "00000000000000000000.log"
    offset = batches = 0
    with log.open("wb") as file:
        for codec in Codec:
            origin = Origin(4711, 2, offset)
            for one in Encoder(codec, batch_bytes=10_000).encode(table, now_ms=1, origin=origin):
                place_batch(one.batch, 0, base_offset=offset, leader_epoch=0)
                file.write(one.batch)
                offset += one.rows
                batches += 1
    said = run_tool(TOOL, "--print-data-log", "--deep-iteration", "--files", str(log))
    assert said.code == 0, said.err
    assert said.out.count("isvalid: true") == batches
    lines = [line for line in said.out.splitlines() if line.startswith("| offset:")]
    assert len(lines) == ROWS * len(Codec)
    for number, line in enumerate(lines):
        row = number % ROWS
        assert line.startswith(f"| offset: {number} ")
        assert f" payload: {f'value-{row}' * (row % 40)}" in line
        assert (f" key: key-{row} " in line) == (row % 3 != 0)
        assert (f"headerKeys: [h{row}]" in line) == (row % 2 == 1)
