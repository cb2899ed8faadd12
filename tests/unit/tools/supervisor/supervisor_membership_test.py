"""Brokers that come to a cluster and leave it: ids, ports, and what is written down of them."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from msgspec import structs

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.limits import BROKERS_MAX
from tidelog.tools.supervisor import membership
from tidelog.tools.supervisor.folder import Cluster, DataFolder, run_in
from tidelog.tools.supervisor.ports import PortKeeper, bootstrap
from tidelog.tools.supervisor.runs import Run

RUN = Run("run", 1, "default", "/run", "/data", "")


@pytest.fixture
def ports() -> Iterator[PortKeeper]:
    keeper = PortKeeper()
    yield keeper
    keeper.close()


@pytest.fixture
def folder(tmp_path: Path, ports: PortKeeper) -> Iterator[DataFolder]:
    """With three brokers."""
    claimed = DataFolder.claim(tmp_path, "default")
    claimed.cluster.ports = [ports.keep(0) for _ in range(3)]
    yield claimed
    claimed.let_go()


def test_an_id_is_not_given_again_while_there_are_others(
    folder: DataFolder, ports: PortKeeper
) -> None:
    first, second, third = folder.cluster.ports
    run = membership.remove(folder, ports, structs.replace(RUN, folder=folder.identity), 1)
    assert folder.cluster.brokers == [0, 2]
    assert run.bootstrap == bootstrap([first, third])
    broker, run = membership.add(folder, ports, run)
    assert broker == 3
    assert folder.cluster.brokers == [0, 2, 3]
    assert ports.keep(second) == second  # it is free for others
    assert run_in(folder.path) == run
    assert run.bootstrap == bootstrap([first, third, folder.cluster.ports[3]])


def test_ids_of_removed_brokers_are_given_again_when_all_others_were() -> None:
    cluster = Cluster("x", ports=[1, 0, *range(2, BROKERS_MAX - 2), 0])
    last = BROKERS_MAX - 1
    assert list(islice(membership.new_ids(cluster), 9)) == [last, 1, last - 1]


def test_a_cluster_of_as_many_brokers_as_there_can_be_takes_no_more(
    folder: DataFolder, ports: PortKeeper
) -> None:
    before = folder.cluster.ports = [*range(1, BROKERS_MAX + 1)]
    with pytest.raises(CannotStartError, match="at most 64 brokers"):
        membership.add(folder, ports, RUN)
    assert folder.cluster.ports == before


def test_what_cannot_be_written_down_has_not_happened(
    folder: DataFolder, ports: PortKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: DataFolder) -> None:
        raise CannotStartError("no space left")

    monkeypatch.setattr(DataFolder, "save_cluster", full)
    before = list(folder.cluster.ports)
    with pytest.raises(CannotStartError):
        membership.add(folder, ports, RUN)
    with pytest.raises(CannotStartError):
        membership.remove(folder, ports, RUN, 0)
    assert folder.cluster.ports == before
    with pytest.raises(CannotStartError):
        ports.keep(before[0])  # it is still held
