"""What is said where a cluster is missing: where it was looked for, and what runs elsewhere.

One fact has one exit code in all commands:

| fact | exit code |
| --- | --- |
| the folder holds no cluster | 3, not found |
| the cluster is there and does not run, or its supervisor cannot be reached | 4, unreachable |
| the folder may not be looked into | 1, failed |
"""

from collections.abc import Sequence
from pathlib import Path

from tidelog.node.runtime.lives import identity
from tidelog.tools.output import FAILED, NOT_FOUND, UNREACHABLE, CliError, Target, nearest
from tidelog.tools.supervisor import registry, runs
from tidelog.tools.supervisor.folder import find, holder_named, supervisor_in
from tidelog.tools.supervisor.runs import Run, State

_NAMED_MAX = 3


def is_there(folder: Path) -> bool:
    """Whether the folder holds a cluster; CliError if that cannot be seen."""
    try:
        (folder / "cluster.json").stat()
        (folder / "lock").open("rb").close()
    except PermissionError as error:
        raise CliError(
            f"cannot look into {folder}: no permission; ask as the user it belongs to", FAILED
        ) from error
    except OSError:
        return (folder / "cluster.json").exists()
    return True


def missing(target: Target, known: Sequence[str]) -> CliError:
    """What to raise if nobody answers for the cluster, or there is none; `known` are the names of
    those beside it."""
    folder = find(target.folder)
    there = is_there(folder)
    named = "cluster" if target.data else f"cluster {target.cluster!r}"
    supervisor = supervisor_in(folder)
    if supervisor is not None:
        return CliError(
            f"{named} in {folder} runs, but its supervisor ({holder_named(supervisor)}) cannot be "
            "reached: try again if it is just starting or ending, or end it with tidelog down "
            f"--force{target.words}",
            UNREACHABLE,
        )
    if there:
        return CliError(
            f"{named} in {folder} is not running: start it with tidelog up{target.words}"
            f"{elsewhere(folder)}",
            UNREACHABLE,
        )
    hint = "" if target.data else nearest(target.cluster, known)
    ended = registry.why_ended(folder)
    ended = f"; the one that ran there has ended: {ended}" if ended else ""
    return CliError(
        f"there is no {named} in {folder}{hint or ': name one with --cluster or --data'}{ended}"
        f"{elsewhere(folder)}",
        NOT_FOUND,
    )


def elsewhere(folder: Path) -> str:
    """The end of such a sentence: what runs in other folders; nothing where nothing does."""
    here = identity(folder)
    found = [run for run, state in runs.living() if state is State.RUNNING and run.folder != here]
    if not found:
        return ""
    more = len(found) - _NAMED_MAX
    rest = f" and {more} more, see tidelog cluster list" if more > 0 else ""
    return f"; running elsewhere: {', '.join(map(_named, found[:_NAMED_MAX]))}{rest}"


def _named(run: Run) -> str:
    return f"{run.cluster!r} in {run.where}"
