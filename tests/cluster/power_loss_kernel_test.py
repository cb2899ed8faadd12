"""Brokers that lose power as a machine does: their file systems forget what the kernel had not
written. The verdicts are those of the power loss that an ordinary user can take.

Needs root and loop devices; skips without.
"""

from collections.abc import Iterator
from random import Random

import pytest

from harness.cluster import Cluster
from harness.dark_disks import DarkCluster, on_dark_disks
from harness.power import Sender, create, log_of, wrong_after_power_loss

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

POLICIES = ("os", "commit")
ACKED = 60
CUTS_NIGHTLY = 60
FEWER, ALL = ((0,), (2,), (0, 1), (1, 2)), ()


@pytest.fixture(scope="module")
def dark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DarkCluster]:
    cluster = Cluster(tmp_path_factory.mktemp("dark"), brokers=3)
    with on_dark_disks(cluster) as running:
        for policy in POLICIES:
            create(cluster, policy, {"min.insync.replicas": "2", "flush.policy": policy})
            cluster.done("wait", "isr", policy)
        yield running


def cut_under_load(dark: DarkCluster, brokers: tuple[int, ...], acked: int = ACKED) -> None:
    """What a cut must not do to either topic, it does not."""
    cluster = dark.cluster
    senders = {one: Sender(cluster, one, sent=len(log_of(cluster, one))) for one in POLICIES}
    with senders["os"].sending(), senders["commit"].sending():
        for sender in senders.values():
            sender.wait_for_acks(acked)
        assert dark.lose(*brokers) == [], "the ledger called it stable"
    cluster.done("broker", "start", *map(str, brokers or range(cluster.brokers)))
    for policy, sender in senders.items():
        is_safe = policy == "commit" or bool(brokers)
        wrong = wrong_after_power_loss(cluster, policy, [sender], loses_nothing=is_safe)
        assert wrong == [], brokers


@pytest.mark.parametrize("brokers", [(0,), (0, 1), ALL], ids=["one", "two", "all"])
def test_what_the_kernel_had_not_written_is_gone_and_nothing_that_was_promised(
    dark: DarkCluster, brokers: tuple[int, ...]
) -> None:
    cut_under_load(dark, brokers)


def test_any_number_of_cuts_in_a_row_take_nothing_that_was_promised(
    dark: DarkCluster, *, nightly: bool
) -> None:
    rng = Random(125)
    for _ in range(CUTS_NIGHTLY if nightly else 1):
        cut_under_load(dark, rng.choice([*FEWER, ALL, ALL]), rng.randint(1, 150))
    dark.cluster.done("log", "verify")
