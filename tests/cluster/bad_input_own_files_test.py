"""Damaged files of our own: the cluster starts, says what is wrong, and serves all the rest.

One start meets every damage at once, each in a topic of its own: that one of them spoils another's
is a finding too.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from harness.clients.fetch_raw import FetchRefusedError, fetch_all
from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster
from tidelog.tools.supervisor.leftovers import remove_run
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import Origin

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BATCHES = 12
VALUES = [bytes([number]) * 900 for number in range(BATCHES)]
GARBAGE = bytes(range(256)) * 3

Damage = Callable[[Path], None]


def logs_of(place: Path) -> list[Path]:
    return sorted(place.glob("*.log"))


def write(pattern: str, content: bytes) -> Damage:
    """Other content for every file that fits; a name without a star may be missing."""

    def damage(place: Path) -> None:
        found = list(place.glob(pattern)) if "*" in pattern else [place / pattern]
        assert found, (place, pattern)
        for file in found:
            file.write_bytes(content)

    return damage


def remove(pattern: str) -> Damage:
    def damage(place: Path) -> None:
        found = list(place.glob(pattern))
        assert found, (place, pattern)
        for file in found:
            file.unlink()

    return damage


def flip(position: int, *, segment: int) -> Damage:
    """One byte of one segment, counted from its end where negative."""

    def damage(place: Path) -> None:
        file = logs_of(place)[segment]
        content = bytearray(file.read_bytes())
        content[position] ^= 0xFF
        file.write_bytes(content)

    return damage


def torn_append(place: Path) -> None:
    """Half of a batch at the end, as a killed write leaves it."""
    file = logs_of(place)[-1]
    batch = logs_of(place)[0].read_bytes()
    size = 12 + int.from_bytes(batch[8:12], "big")
    with file.open("ab") as stream:
        stream.write(batch[: size // 2])


def cut_tail(place: Path) -> None:
    file = logs_of(place)[-1]
    os.truncate(file, file.stat().st_size - 7)


def lose_a_middle_segment(place: Path) -> None:
    logs_of(place)[1].unlink()


def link_elsewhere(place: Path) -> None:
    file = logs_of(place)[-1]
    file.rename(place / "elsewhere")
    file.symlink_to(place / "elsewhere")


def directory_for_file(place: Path) -> None:
    file = logs_of(place)[-1]
    file.unlink()
    file.mkdir()


def strangers(place: Path) -> None:
    for name in ("x", "00.log", "99999999999999999999.log.tmp", "-1.index", "00000000000000000000"):
        (place / name).write_bytes(GARBAGE)


def pad(pattern: str) -> Damage:
    def damage(place: Path) -> None:
        for file in place.glob(pattern):
            file.write_bytes(file.read_bytes() + b"\xff\xff\xff")

    return damage


WHOLE, PREFIX, OFFLINE, ANY = "whole", "prefix", "offline", "any"
# After a kill nothing is believed that was not read. After a clean stop only what is looked at
# when a log is opened is found then; a flip elsewhere is found when somebody wants the batch.
DAMAGES: dict[str, tuple[Damage, str, str]] = {
    # name: damage, after a kill, after a clean stop
    "none": (lambda _: None, WHOLE, WHOLE),
    "torn-append": (torn_append, WHOLE, WHOLE),
    # A clean stop said where the log ends: with less than that it might lead, and shorten others.
    "cut-tail": (cut_tail, PREFIX, OFFLINE),
    "empty-last-log": (lambda place: os.truncate(logs_of(place)[-1], 0), PREFIX, OFFLINE),
    "flip-first": (flip(300, segment=0), OFFLINE, OFFLINE),
    "flip-middle": (flip(300, segment=1), OFFLINE, OFFLINE),
    "flip-last-value": (flip(-5, segment=-1), PREFIX, OFFLINE),
    "flip-last-magic": (flip(16, segment=-1), ANY, ANY),
    "flip-length": (flip(8, segment=0), OFFLINE, ANY),
    "lost-segment": (lose_a_middle_segment, OFFLINE, ANY),
    "index-garbage": (write("*.index", GARBAGE), WHOLE, WHOLE),
    "index-empty": (write("*.index", b""), WHOLE, WHOLE),
    "index-zeros": (write("*.index", bytes(64)), WHOLE, WHOLE),
    "index-gone": (remove("*.index"), WHOLE, WHOLE),
    "index-padded": (pad("*.index"), WHOLE, WHOLE),
    "time-garbage": (write("*.timeindex", GARBAGE), WHOLE, WHOLE),
    "time-empty": (write("*.timeindex", b""), WHOLE, WHOLE),
    "time-gone": (remove("*.timeindex"), WHOLE, WHOLE),
    "snapshot-garbage": (write("*.snapshot", GARBAGE), WHOLE, WHOLE),
    "snapshot-empty": (write("*.snapshot", b""), WHOLE, WHOLE),
    "epochs-garbage": (write("leader-epoch-checkpoint", GARBAGE), WHOLE, WHOLE),
    "epochs-empty": (write("leader-epoch-checkpoint", b""), WHOLE, WHOLE),
    "epochs-gone": (remove("leader-epoch-checkpoint"), WHOLE, WHOLE),
    "epochs-wrong": (write("leader-epoch-checkpoint", b"0\n1\n0 999\n"), WHOLE, WHOLE),
    "epochs-ahead": (write("leader-epoch-checkpoint", b"0\n1\n999 0\n"), ANY, ANY),
    "epochs-huge": (write("leader-epoch-checkpoint", b"0\n1\n99999999999 0\n"), ANY, ANY),
    "metadata-garbage": (write("partition.metadata", GARBAGE), WHOLE, WHOLE),
    "metadata-empty": (write("partition.metadata", b""), WHOLE, WHOLE),
    "link": (link_elsewhere, OFFLINE, OFFLINE),
    "directory": (directory_for_file, OFFLINE, OFFLINE),
    "strangers": (strangers, WHOLE, WHOLE),
}


def fill(cluster: Cluster) -> None:
    with RawClient(cluster.bootstrap) as raw:
        for name in DAMAGES:
            cluster.create_topic(name, configs={"segment.bytes": "4096"})
            for number, value in enumerate(VALUES):
                origin = Origin(producer_id=7, producer_epoch=0, base_sequence=number)
                assert produce(raw, name, batch_of(value, origin=origin)).error_code == 0


@pytest.fixture(scope="module", params=["kill", "clean"])
def ending(request: pytest.FixtureRequest) -> str:
    word: str = request.param
    return word


@pytest.fixture(scope="module")
def filled(ending: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cluster that has ended, to be copied."""
    cluster = Cluster(tmp_path_factory.mktemp("filled"))
    try:
        cluster.start()
        fill(cluster)
        if ending == "clean":
            cluster.stop()
    finally:
        if cluster.pids():
            cluster.kill_everything()
        for run in cluster.runs:
            remove_run(run.run_id)
    return cluster.folder


@pytest.fixture
def ended(filled: Path, tmp_path: Path) -> Iterator[Cluster]:
    """A cluster on a copy of those files; the test damages some, then starts it."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True, symlinks=True)
    cluster = Cluster(tmp_path)
    yield cluster
    if cluster.pids():
        cluster.stop("--force")
    cluster.assert_nothing_is_left()


def broker_files(cluster: Cluster) -> Path:
    return cluster.data / "broker-0/log0"


def state_of(raw: RawClient, topic: str) -> str:
    try:
        values = [row.value for row in fetch_all(raw, topic)]
    except FetchRefusedError as refused:
        assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR, (topic, refused.code)
        return OFFLINE
    if values == VALUES:
        return WHOLE
    return PREFIX if values == VALUES[: len(values)] else f"{len(values)} other values"


def assert_no_crash(cluster: Cluster) -> None:
    logs = cluster.logs()
    assert "Traceback" not in logs, logs
    assert '"crashed"' not in logs, logs


def events(cluster: Cluster, *names: str) -> list[dict[str, str]]:
    lines = [json.loads(line) for line in cluster.logs().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] in names]


def assert_serves(cluster: Cluster, topic: str) -> None:
    with RawClient(cluster.bootstrap) as raw:
        assert state_of(raw, topic) == WHOLE
        assert produce(raw, topic, batch_of(b"more")).base_offset == BATCHES


def _unexpected(found: Mapping[str, str], ending: str) -> dict[str, str]:
    column = 1 if ending == "kill" else 2
    return {
        name: f"{found[name]}, not {row[column]}"
        for name, row in DAMAGES.items()
        if row[column] not in {ANY, found[name]}
    }


def _state_at_last(cluster: Cluster, topic: str) -> str:
    """A connection ends where its answer was begun with bytes that turn out bad."""
    try:
        with RawClient(cluster.bootstrap) as raw:
            return state_of(raw, topic)
    except EOFError:
        with RawClient(cluster.bootstrap) as raw:
            return state_of(raw, topic)


def test_every_damaged_partition_is_served_as_far_as_it_is_good(
    ended: Cluster, ending: str
) -> None:
    for name, (damage, _, _) in DAMAGES.items():
        damage(broker_files(ended) / f"{name}-0")
    ended.start()
    assert_no_crash(ended)
    found = {name: _state_at_last(ended, name) for name in DAMAGES}
    assert not _unexpected(found, ending)
    told = {line["partition"] for line in events(ended, "partition_offline", "storage_failed")}
    assert told >= {f"{name}-0" for name, state in found.items() if state == OFFLINE}
    assert_serves(ended, "none")
    # And once more: what was mended must not have been broken for the next start.
    ended.stop()
    ended.start()
    assert_no_crash(ended)
    whole = [name for name, state in found.items() if state == WHOLE and name != "none"]
    with RawClient(ended.bootstrap) as raw:
        assert {name: state_of(raw, name) for name in whole} == dict.fromkeys(whole, WHOLE)


WHERE_BROKER = "broker-0/log0"
WHERE_COORDINATOR = "coordinator"
SPARED: dict[str, tuple[str, Damage]] = {
    "recovery points garbage": (
        WHERE_BROKER,
        write("recovery-point-offset-checkpoint", GARBAGE),
    ),
    "recovery points empty": (WHERE_BROKER, write("recovery-point-offset-checkpoint", b"")),
    "high watermarks garbage": (WHERE_BROKER, write("replication-offset-checkpoint", GARBAGE)),
    "high watermarks far": (
        WHERE_BROKER,
        write("replication-offset-checkpoint", b"0\n1\nnone 0 99999\n"),
    ),
    "log starts garbage": (WHERE_BROKER, write("log-start-offset-checkpoint", GARBAGE)),
    "mark garbage": (WHERE_BROKER, write("tidelog.mark", GARBAGE)),
    "mark empty": (WHERE_BROKER, write("tidelog.mark", b"")),
    "mark gone": (WHERE_BROKER, remove("tidelog.mark")),
    "coordinator's mark garbage": (WHERE_COORDINATOR, write("tidelog.mark", GARBAGE)),
    "coordinator's mark gone": (WHERE_COORDINATOR, remove("tidelog.mark")),
    "metadata tail torn": (
        WHERE_COORDINATOR + "/__cluster_metadata-0",
        torn_append,
    ),
    "metadata indexes garbage": (
        WHERE_COORDINATOR + "/__cluster_metadata-0",
        write("00000000000000000000.index", GARBAGE),
    ),
    "metadata epochs garbage": (
        WHERE_COORDINATOR + "/__cluster_metadata-0",
        write("leader-epoch-checkpoint", GARBAGE),
    ),
}


@pytest.mark.parametrize("case", SPARED)
def test_what_can_be_found_again_costs_nothing(ended: Cluster, case: str) -> None:
    where, damage = SPARED[case]
    damage(ended.data / where)
    ended.start()
    assert_no_crash(ended)
    assert_serves(ended, "none")


REFUSED: dict[str, tuple[str, Damage, str]] = {
    "broker's identity": (WHERE_BROKER, write("meta.properties", GARBAGE), "meta.properties"),
    "broker's identity empty": (WHERE_BROKER, write("meta.properties", b""), "meta.properties"),
    "broker's identity gone": (WHERE_BROKER, remove("meta.properties"), "meta.properties"),
    "another cluster's": (
        WHERE_BROKER,
        write(
            "meta.properties",
            b"version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\nnode.id=0\n"
            b"directory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
        ),
        "belongs to cluster.id 'AAAAAAAAAAAAAAAAAAAAAA'",
    ),
    "metadata flipped": (
        WHERE_COORDINATOR + "/__cluster_metadata-0",
        flip(200, segment=0),
        "the metadata log is damaged",
    ),
    "metadata emptied": (
        WHERE_COORDINATOR + "/__cluster_metadata-0",
        lambda place: os.truncate(logs_of(place)[0], 0),
        "the metadata log ",
    ),
    "metadata gone": (WHERE_COORDINATOR, shutil.rmtree, "is gone, but"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_found_again_is_refused_in_one_sentence(ended: Cluster, case: str) -> None:
    where, damage, sentence = REFUSED[case]
    damage(ended.data / where)
    before = sorted(path.name for path in broker_files(ended).iterdir())
    finished = ended.command("up", "--detach", "--base-port", "0")
    assert finished.code == 1, (finished, ended.logs())
    assert len(finished.err.splitlines()) == 1, finished.err
    assert sentence in finished.err, ended.logs()
    assert_no_crash(ended)
    after = sorted(path.name for path in broker_files(ended).iterdir())
    assert set(before) <= set(after)
