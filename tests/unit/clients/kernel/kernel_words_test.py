"""Ids, instants, failures and the names of what a run makes."""

import pytest

from tidelog.kernel import launch
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import ZERO_UUID, Uuid, uuid_from_text, uuid_text
from tidelog.kernel.instant import ms, s
from tidelog.kernel.sizes import UNITS, byte_count


def test_a_uuid_in_kafka_s_form_reads_back() -> None:
    uuid = Uuid(bytes(range(240, 256)))
    assert uuid_text(uuid) == "8PHy8_T19vf4-fr7_P3-_w"
    assert uuid_from_text("8PHy8_T19vf4-fr7_P3-_w") == uuid
    assert uuid_from_text(uuid_text(ZERO_UUID)) == ZERO_UUID


@pytest.mark.parametrize("text", ["", "short", "A" * 23, "*" * 22])
def test_what_is_no_uuid_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        uuid_from_text(text)


def test_milliseconds_and_seconds_become_nanoseconds() -> None:
    assert ms(1.5) == 1_500_000
    assert s(2) == 2_000_000_000


@pytest.mark.parametrize("unit", UNITS)
def test_a_size_takes_each_unit_with_a_space_or_without(unit: str) -> None:
    assert byte_count(f"3{unit}") == byte_count(f"3 {unit}".rstrip()) == 3 * UNITS[unit]


@pytest.mark.parametrize("text", ["", "0", "0MiB", "-1", "1.5MiB", "1  MiB", "MiB", "9" * 19])
def test_what_is_no_size_is_none(text: str) -> None:
    assert byte_count(text) is None


def test_corrupt_data_names_its_place() -> None:
    error = CorruptError(file="0.log", position=61, reason="crc")
    assert str(error) == "0.log at byte 61: crc"
    assert (error.file, error.position, error.reason) == ("0.log", 61, "crc")


def test_what_a_run_makes_is_named_in_one_place() -> None:
    assert launch.board_name("r1") == "/tidelog-r1-board"
    assert launch.coordinator_endpoint("/run/x") == "ipc:///run/x/coordinator"
    assert launch.supervisor_socket("/run/x") == "/run/x/supervisor.sock"
    assert launch.broker_directory("/d", 2) == "/d/broker-2/log0"
    assert launch.coordinator_directory("/d") == "/d/coordinator"
    assert launch.log_file("/d", "broker", 2) == "/d/logs/broker-2.log"
