"""Who loses power is killed, stays down until asked for, and is told of it at its next start."""

import signal
from pathlib import Path

from tidelog.kernel.ids import Incarnation
from tidelog.kernel.instant import Instant
from tidelog.node.ipc.layout import Role
from tidelog.tools.supervisor import plan
from tidelog.tools.supervisor.folder import DataFolder, read_cluster
from tidelog.tools.supervisor.plan import Name, Plan
from tidelog.tools.supervisor.power import generation_of, note_losses

COORDINATOR = Name(Role.COORDINATOR, 0)
STANDBY = Name(Role.COORDINATOR, 1)
BROKER = Name(Role.BROKER, 0)
NOW = Instant(0)


def running() -> Plan:
    """All of them, with --restart: whoever ends by a fault is started again."""
    made = Plan.of([COORDINATOR, BROKER], restart=True, next_incarnation=Incarnation(1))
    made.step(NOW, plan.Ticked())
    for pid, name in enumerate((COORDINATOR, BROKER), 1):
        made.step(NOW, plan.Spawned(name, pid))
        made.step(NOW, plan.BecameReady(name))
    assert made.opened
    return made


def test_who_loses_power_is_killed_and_stays_down() -> None:
    for name in (COORDINATOR, BROKER):
        made = running()
        assert made.step(NOW, plan.PowerLost(name)) == [plan.Send(name, signal.SIGKILL)]
        assert made.step(NOW, plan.Ended(name, -signal.SIGKILL)) == [plan.Tell("died", name)]
        assert made.deadline() is None
        (spawn,) = made.step(NOW, plan.StartAsked(name))
        assert isinstance(spawn, plan.Spawn)


def test_a_kill_alone_is_made_good() -> None:
    made = running()
    _, spawn = made.step(NOW, plan.Ended(BROKER, -signal.SIGKILL))
    assert isinstance(spawn, plan.Spawn)


def test_the_dead_lose_power_too() -> None:
    made = running()
    made.step(NOW, plan.StopAsked(BROKER))
    made.step(NOW, plan.Ended(BROKER, 0))
    assert made.step(NOW, plan.PowerLost(BROKER)) == []


def test_each_process_is_told_of_its_own_losses(tmp_path: Path) -> None:
    folder = DataFolder.claim(tmp_path / "data", "default")
    before = [generation_of(folder.cluster, name) for name in (BROKER, COORDINATOR)]
    note_losses(folder, [BROKER])
    note_losses(folder, [BROKER, COORDINATOR, STANDBY])
    kept = read_cluster(folder.path)
    folder.let_go()
    after = [generation_of(kept, name) for name in (BROKER, COORDINATOR, Name(Role.BROKER, 1))]
    assert after == [before[0] + 2, before[1] + 1, kept.disk_generation]
