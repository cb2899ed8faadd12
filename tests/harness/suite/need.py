"""Programs that some tests need: skipped without them, except where they must run.

`HARNESS_REQUIRE=java,go` turns the skip for those into a failure: CI sets it, so that no test
there is left out silently.
"""

import os
import shutil
from typing import Final, NoReturn

import pytest

ABILITIES: Final = frozenset({"a disk", "a file system in memory", "cachestat", "loop", "mount"})
"""Of the machine: what is asked of `need_that` and is no program."""


def need(*programs: str) -> None:
    """Skip the running test where a program is missing; fail where it is required."""
    for program in programs:
        if shutil.which(program) is None:
            _miss(program)


def need_that(program: str, *, works: bool, why: str) -> None:
    """As `need`, for what is there but may not work here (a tracer without permission)."""
    if not works:
        _miss(program, why)


def required() -> frozenset[str]:
    """What this run must not skip."""
    names = os.environ.get("HARNESS_REQUIRE", "").split(",")
    return frozenset(name.strip() for name in names if name.strip())


def absent() -> list[str]:
    """Programs that this run must not skip, and that are nowhere: perhaps a name is mistyped. What
    is required and no program (a disk, a permission) only its tests can tell."""
    programs = (name for name in required() if name not in ABILITIES)
    return sorted(name for name in programs if shutil.which(name) is None)


def _miss(program: str, why: str = "is not on this machine") -> NoReturn:
    if program in required():
        pytest.fail(f"{program} {why}, and HARNESS_REQUIRE names it")
    pytest.skip(f"{program} {why}")
