"""Programs that some tests need: skipped without them, except where they must run.

`HARNESS_REQUIRE=java,go` turns the skip for those into a failure: CI sets it, so that no test
there is left out silently.
"""

import os
import shutil
from typing import NoReturn

import pytest


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


def _miss(program: str, why: str = "is not on this machine") -> NoReturn:
    if program in required():
        pytest.fail(f"{program} {why}, and HARNESS_REQUIRE names it")
    pytest.skip(f"{program} {why}")
