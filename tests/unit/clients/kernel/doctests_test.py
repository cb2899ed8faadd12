"""Examples in docstrings say what the code does."""

import doctest
import importlib
import pkgutil

import pytest

import tidelog.clients
import tidelog.coordinator
import tidelog.kernel
import tidelog.node
import tidelog.tools
import tidelog.wire

PACKAGES = (
    tidelog.kernel,
    tidelog.wire,
    tidelog.clients,
    tidelog.node,
    tidelog.coordinator,
    tidelog.tools,
)
MODULES = [
    found.name
    for package in PACKAGES
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
    if not found.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
