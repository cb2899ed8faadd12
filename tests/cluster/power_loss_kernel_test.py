"""Brokers that lose power as a machine does: their file systems forget what the kernel had not
written. The verdicts are those of the power loss that an ordinary user can take.

Needs root and loop devices; skips without.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from harness.disks.mounts import need_disks, own_mounts
from harness.faults.power import Sender, create, log_of, power_loss, wrong_after_power_loss
from harness.processes.cluster import Cluster
from harness.processes.commands import TIDELOG

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

POLICIES = ("os", "commit")
ACKED = 60
CUTS_NIGHTLY = 60
DISKS = ["--disks", "loop:64MiB"]
FEWER, ALL = ((0,), (2,), (0, 1), (1, 2)), ()


@pytest.fixture(scope="module", autouse=True)
def _mounts_of_our_own() -> Iterator[None]:
    """Seen by these tests only, and gone with them, whatever becomes of them."""
    need_disks()
    with own_mounts():
        yield


@pytest.fixture(scope="module")
def dark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("dark"), brokers=3, options=DISKS) as running:
        for policy in POLICIES:
            create(running, policy, {"min.insync.replicas": "2", "flush.policy": policy})
            running.done("wait", "isr", policy)
        yield running


def cut_under_load(dark: Cluster, brokers: tuple[int, ...], acked: int = ACKED) -> None:
    """What a cut must not do to either topic, it does not."""
    named = [str(broker) for broker in brokers] or ["--all"]
    senders = {one: Sender(dark, one, sent=len(log_of(dark, one))) for one in POLICIES}
    with senders["os"].sending(), senders["commit"].sending():
        for sender in senders.values():
            sender.wait_for_acks(acked)
        done = power_loss(dark, *named, "--tier", "2")
    assert [row["stable_lost"] for row in done["processes"]] == [[]] * len(done["processes"])
    assert any(row["lost"] for row in done["processes"]), "something was not synced"
    dark.done("broker", "start", *map(str, brokers or range(dark.brokers)))
    for policy, sender in senders.items():
        is_safe = policy == "commit" or bool(brokers)
        wrong = wrong_after_power_loss(dark, policy, [sender], loses_nothing=is_safe)
        assert wrong == [], brokers


@pytest.mark.parametrize("brokers", [(0,), (0, 1), ALL], ids=["one", "two", "all"])
def test_what_the_kernel_had_not_written_is_gone_and_nothing_that_was_promised(
    dark: Cluster, brokers: tuple[int, ...]
) -> None:
    cut_under_load(dark, brokers)


def test_any_number_of_cuts_in_a_row_take_nothing_that_was_promised(
    dark: Cluster, *, nightly: bool
) -> None:
    rng = Random(125)
    for _ in range(CUTS_NIGHTLY if nightly else 1):
        cut_under_load(dark, rng.choice([*FEWER, ALL, ALL]), rng.randint(1, 150))
    dark.done("log", "verify")


def test_a_dry_run_kills_nobody_and_tells_the_worst(dark: Cluster) -> None:
    pid = dark.broker_pid(0)
    create(dark, "dry", {})
    dark.done("produce", "dry", text="one\n")
    done = power_loss(dark, "0", "--tier", "2", "--dry-run")
    (told,) = done["processes"]
    assert (done["tier"], done["seed"], done["dry_run"]) == (2, None, True)
    assert {row["what"] for row in told["lost"] if "/dry-0/" in row["file"]} == {"gone"}
    assert all(row["left"] <= row["stable"] for row in told["lost"] if row["what"] == "bytes")
    assert dark.broker_pid(0) == pid


def test_a_broker_that_comes_and_goes_takes_its_disk_along(dark: Cluster) -> None:
    added = dark.done("broker", "add", "--json").document["processes"][0]["id"]
    place, image = dark.data / f"broker-{added}", dark.data / f"disks/broker-{added}.ext4"
    assert place.is_mount()
    dark.done("broker", "remove", str(added))
    assert not place.exists()
    assert not image.exists()


def test_a_sync_that_is_forgotten_is_seen_and_is_a_violation(tmp_path: Path) -> None:
    lying = ("-m", "harness.disks.lying_seam", "skip_fsync")
    with Cluster(tmp_path, program=lying, options=DISKS) as cluster:
        cluster.program = TIDELOG
        create(cluster, "t", {"flush.policy": "commit"})
        cluster.done("produce", "t", text="one\n")
        done = cluster.command("chaos", "power-loss", "0", "--tier", "2", "--json")
        (told,) = done.document["processes"]
        assert done.code == 5
        assert "broker-0/log0/t-0/00000000000000000000.log" in told["stable_lost"]
