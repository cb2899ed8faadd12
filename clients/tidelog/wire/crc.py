"""CRC-32C of anything with a buffer, without a copy.

The function is taken out of the package `crc32c` without running the package: that would import
importlib.metadata and the email parser for its version string, 40 ms of every start.

>>> hex(crc32c(b"123456789"))
'0xe3069283'
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

Bytes = bytes | bytearray | memoryview


def load(inner: str) -> Any:  # noqa: ANN401 -- a compiled module
    """The package's compiled part by its name; the whole package where it has no such part."""
    package = find_spec("crc32c")
    folders = package.submodule_search_locations if package else None
    found = PathFinder.find_spec(inner, folders)
    if found is None or found.loader is None:
        import crc32c  # noqa: PLC0415 -- the long way, should the package change inside

        return crc32c
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


crc32c: Callable[..., int] = load("_crc32c").crc32c
"""crc32c(data, crc_so_far=0): a batch that comes in parts continues where the last part ended."""
