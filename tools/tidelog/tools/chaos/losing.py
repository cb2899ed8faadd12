"""A power loss from end to end: who has which files, what the ledger says, the image, its rows."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.launch import (
    COORDINATOR_LEDGER,
    broker_directories,
    broker_ledger,
    coordinator_directory,
)
from tidelog.node.ipc.ledger_memory import (
    forget_saved,
    helpers_of,
    ledgers_left,
    read_ledger,
    remove_ledger,
)
from tidelog.node.runtime.cleaner_worker import WORKER_MODULE
from tidelog.tools.chaos.power_loss import Loss, draw_image, losses, make_image
from tidelog.tools.chaos.records_lost import Window, windows
from tidelog.tools.chaos.survey import Survey, recorded, survey
from tidelog.tools.supervisor.proc import running

_LOOKS_MAX = 20
_WORKERS_END_WITHIN_S = 10.0
_LOOK_EVERY_S = 0.002


class UnknownError(Exception):
    """Nobody knows what of its files is on stable storage; the text says why."""


class Victim(Struct, frozen=True):
    """Whose files."""

    role: str
    process_id: int
    ledger: str
    tops: tuple[str, ...]


class Lost(Struct, frozen=True):
    """What a power loss left of its files."""

    victim: Victim
    files: int
    rows: tuple[Loss, ...]
    is_full: bool
    windows: tuple[Window, ...] = ()
    """What replicas lose; known only of what is drawn."""
    broken: tuple[str, ...] = ()
    """What the ledger called stable and is gone all the same."""


def broker_victim(data_dir: str, broker_id: int, settings: Mapping[str, str]) -> Victim:
    tops = broker_directories(data_dir, broker_id, settings)
    return Victim("broker", broker_id, broker_ledger(broker_id), tops)


def coordinator_victim(data_dir: str) -> Victim:
    """Whichever of them leads: the files are the same."""
    tops = (coordinator_directory(data_dir),)
    return Victim("coordinator", 0, COORDINATOR_LEDGER, tops)


def look(run_id: str, victim: Victim) -> Survey:
    """Also while it lives: then a look at files that come and go is done again."""
    for attempt in range(_LOOKS_MAX):
        try:
            parts = read_ledger(run_id, victim.ledger)
            if not parts:
                break
            others = [parts for _, parts in ledgers_left(run_id, victim.ledger)]
            return survey(recorded([parts, *others]), victim.tops)
        except FileNotFoundError:
            if attempt == _LOOKS_MAX - 1:
                raise
        except CorruptError as error:
            raise UnknownError(f"{victim.role} {victim.process_id}: {error}") from error
    raise UnknownError(
        f"{victim.role} {victim.process_id} has no ledger of what is on stable storage: "
        "it had no room in /dev/shm when it started, see tidelog logs"
    )


def wait_for_workers(run_id: str, victims: Sequence[Victim]) -> None:
    """Of dead brokers. The kernel kills the processes that compact for them a moment later, and
    what these write until then would not fit to what was seen of the files."""
    deadline = time.monotonic() + _WORKERS_END_WITHIN_S
    while left := [pid for victim in victims for pid in workers_of(run_id, victim)]:
        if time.monotonic() > deadline:
            pids = ", ".join(map(str, left))
            raise UnknownError(
                f"processes that compact for dead brokers do not end (pid {pids}): kill them; "
                "nothing was taken from the files"
            )
        time.sleep(_LOOK_EVERY_S)


def workers_of(run_id: str, victim: Victim) -> list[int]:
    """The processes that compact for a broker, also when that is dead already."""
    ledgers = helpers_of(victim.ledger)
    return [
        pid
        for pid, words in running(WORKER_MODULE)
        if run_id in words and any(word.startswith(ledgers) for word in words)
    ]


def lose(
    run_id: str, data_dir: str, victims: Sequence[Victim], seed: int, *, dry: bool = False
) -> list[Lost]:
    """Unless `dry`, all of them must be dead."""
    done = []
    for victim in victims:
        found = look(run_id, victim)
        image = draw_image(found, seed, victim.ledger)
        rows = tuple(losses(found, image))
        cut = tuple(windows(found, image))
        done.append(Lost(victim, len(found.files), rows, found.is_full, cut))
        if not dry:
            make_image(found, image)
            forget_ledger(run_id, data_dir, victim)
    return done


def forget_ledger(run_id: str, data_dir: str, victim: Victim) -> None:
    """All there is was on the disk: nothing that an earlier life said of it counts any more."""
    for name, _ in ledgers_left(run_id, victim.ledger, data_dir):
        remove_ledger(run_id, name)
    remove_ledger(run_id, victim.ledger)
    forget_saved(data_dir, victim.ledger)


def shown_path(data_dir: str) -> Callable[[str], str]:
    """Paths as a person would give them."""

    def shown(path: str) -> str:
        inside = Path(path).is_relative_to(data_dir)
        return str(Path(path).relative_to(data_dir)) if inside else path

    return shown
