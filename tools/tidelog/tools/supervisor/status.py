"""The document that `tidelog status --json` prints. Pure."""

import signal
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tidelog.kernel.ids import COORDINATOR_ID
from tidelog.node.ipc.layout import Role, Slot, Word
from tidelog.tools.supervisor.plan import Name, Phase
from tidelog.tools.supervisor.runs import Run

VERSION = 1


class Seen(Struct, frozen=True):
    """One process as it was found at this moment."""

    name: Name
    role: str
    """What it is now: of the coordinators all but one are standbys."""
    pid: int | None
    state: str
    uptime_s: float
    rss_bytes: int
    pss_bytes: int
    port: int | None
    flush_policy: str | None
    slot: Slot | None
    """What it last published in this life."""


def state_of(phase: Phase, code: int, *, stopped: bool, fenced: bool) -> str:
    """In the words of the contract; `killed` is every end by a fault."""
    if phase is Phase.ENDED:
        return "stopped" if code in {0, -signal.SIGTERM} else "killed"
    if phase is Phase.WAITING:
        return "starting"
    if stopped:
        return "paused"
    if fenced:
        return "fenced"
    return phase.value


def document(run: Run, cluster_id: str, state: str, processes: Sequence[Seen]) -> dict[str, Any]:
    """Counts come from the coordinator's slot, zeros before it has published any."""
    coordinator = next((p for p in processes if p.role == role_word(Role.COORDINATOR)), None)
    slot = coordinator.slot if coordinator else None
    epoch = slot[Word.CONTROLLER_EPOCH] if slot else 0
    return {
        "version": VERSION,
        "cluster": run.cluster,
        "cluster_id": cluster_id,
        "bootstrap": run.bootstrap,
        "data": run.data_dir,
        "state": state,
        "controller": {
            "id": COORDINATOR_ID,
            "epoch": epoch,
            "pid": coordinator.pid if coordinator else None,
        },
        "processes": [_process(seen) for seen in processes],
        "topics": slot[Word.TOPICS] if slot else 0,
        "partitions": slot[Word.PARTITIONS] if slot else 0,
        "under_replicated": slot[Word.UNDER_REPLICATED] if slot else 0,
        "under_min_isr": slot[Word.UNDER_MIN_ISR] if slot else 0,
        "offline": slot[Word.OFFLINE] if slot else 0,
        "not_compacted": sum(map(_not_compacted, processes)),
    }


def _process(seen: Seen) -> dict[str, Any]:
    is_broker = seen.name.role is Role.BROKER
    slot = seen.slot
    return {
        "role": seen.role,
        "id": seen.name.process_id,
        "pid": seen.pid,
        "state": seen.state,
        "port": seen.port,
        "uptime_s": round(seen.uptime_s, 1),
        "rss_bytes": seen.rss_bytes,
        "pss_bytes": seen.pss_bytes,
        "flush_policy": seen.flush_policy,
        "leaders": (slot[Word.LEADERS] if slot else 0) if is_broker else None,
        "replicas": (slot[Word.REPLICAS] if slot else 0) if is_broker else None,
    }


def _not_compacted(seen: Seen) -> int:
    """How many replicas of a broker cannot be compacted."""
    is_broker = seen.name.role is Role.BROKER
    return seen.slot[Word.NOT_COMPACTED] if is_broker and seen.slot is not None else 0


def role_word(role: Role) -> str:
    return role.name.lower().replace("_", "-")
