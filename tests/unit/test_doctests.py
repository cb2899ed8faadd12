"""Examples in docstrings say what the code does."""

import doctest
import importlib
import pkgutil

import pytest

import tidelog.kernel
import tidelog.wire

MODULES = [
    found.name
    for package in (tidelog.kernel, tidelog.wire)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
