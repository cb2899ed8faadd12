"""Examples in docstrings say what the code does."""

import doctest
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelog.clients
import tidelog.coordinator
import tidelog.kernel
import tidelog.node
import tidelog.spark
import tidelog.tools
import tidelog.wire

PACKAGES = (
    tidelog.kernel,
    tidelog.wire,
    tidelog.clients,
    tidelog.spark,
    tidelog.node,
    tidelog.coordinator,
    tidelog.tools,
)

EXAMPLE = re.compile(r"^ *>>> ", re.MULTILINE)


def examples() -> Iterator[str]:
    """The modules that have some: to look through all others takes longer."""
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            spec = found.module_finder.find_spec(found.name, None)
            if (
                spec is not None
                and spec.origin is not None
                and EXAMPLE.search(text_of(spec.origin))
            ):
                yield found.name


def text_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [*examples()])
def test_the_examples_of_a_module_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted > 0
    assert found.failed == 0
