"""What the programs of bench/ compute from what they see."""

import argparse
import os
import struct
from pathlib import Path

import pytest

from measuring import Figures, busy_s, cpu_s, middle, percentile, pss_mb, repeat, tree
from raw_client import PRODUCE_VERSION, ProduceFrame, fetch_request
from tidelog.wire.frame import decode_request
from tidelog.wire.header import decode_request_header
from tidelog.wire.messages.k00_produce import API
from tidelog.wire.records import check_crc, iterate_records, read_header
from workloads import rates, values


def test_noisy_runs_are_left_out_of_the_median() -> None:
    runs: list[Figures] = [{"x": 1.0}, {"x": 3.0}, {"x": 2.0}, {"x": 900.0, "noisy": True}]
    assert middle(runs, "x") == 2.0


def test_where_every_run_was_noisy_all_of_them_count() -> None:
    runs: list[Figures] = [{"x": 5.0, "noisy": True}, {"x": 7.0, "noisy": True}]
    assert middle(runs, "x") == 6.0
    assert middle(runs, "y") is None


@pytest.mark.parametrize(("share", "wanted"), [(0.5, 50), (0.99, 99), (0.999, 100), (1.0, 100)])
def test_a_percentile_is_a_value_that_was_measured(share: float, wanted: float) -> None:
    assert percentile(list(range(100, 0, -1)), share) == wanted


def test_a_run_is_noisy_by_what_others_used() -> None:
    asked = argparse.Namespace(runs=3, noise=0.1, quiet_wait=0.0)
    shares = iter((0.05, 0.5, 0.1))
    runs = repeat(asked, lambda: {"other_share": next(shares)})
    assert [run["noisy"] for run in runs] == [False, True, False]


def test_rates_are_per_second_and_per_gb_of_values() -> None:
    figures = {"wall_s": 2.0, "brokers_cpu_s": 1.5, "client_cpu_s": 3.0}
    found = rates(figures, records=4_000_000, value_bytes=3_000_000_000)
    assert found["mb_per_s"] == 1500.0
    assert found["records_per_s"] == 2_000_000
    assert found["brokers_cpu_s_per_gb"] == 0.5
    assert found["client_cpu_s_per_gb"] == 1.0


@pytest.mark.parametrize("size", [50, 100, 1024, 5000])
def test_values_have_exactly_the_size_asked_for(size: int) -> None:
    made = values(size, count=50)
    assert {len(value) for value in made} == {size}
    assert made == values(size, count=50)
    assert len(set(made)) == 50


def test_a_frame_sent_again_has_a_new_sequence_and_a_right_checksum() -> None:
    frame = ProduceFrame("t", 3, [b"one", b"two"], (7, 1))
    for turn in range(3):
        sent = bytes(frame.next(turn))
        assert struct.unpack_from(">i", sent) == (len(sent) - 4,)
        view = memoryview(sent)[4:]
        header = decode_request_header(view, {API.key: API})
        assert header.correlation_id == turn
        request = decode_request(API, PRODUCE_VERSION, view, header.body_position)
        (data,) = request.topic_data[0].partition_data
        assert data.index == 3
        assert data.records is not None
        assert check_crc(data.records)
        batch = read_header(data.records)
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 1, 2 * turn)
        assert [record.value for record in iterate_records(data.records)] == [b"one", b"two"]


def test_a_fetch_asks_for_each_partition_from_its_offset() -> None:
    request = fetch_request("t", {0: 5, 1: 9}, partition_bytes=1000)
    (topic,) = request.topics
    assert [(p.partition, p.fetch_offset) for p in topic.partitions] == [(0, 5), (1, 9)]


def test_a_process_s_own_figures_are_found() -> None:
    me = os.getpid()
    assert me in tree([me])
    assert 0 < cpu_s([me]) <= busy_s()
    memory = pss_mb([me])
    assert memory["all"] >= memory[Path("/proc/self/comm").read_text(encoding="utf-8").strip()] > 0


def test_a_process_that_is_gone_has_used_nothing() -> None:
    assert cpu_s([2**22 - 1]) == 0.0
