"""The functions of the product as they are loaded, and how they get other code.

A function object keeps its identity, so whoever has a reference to it (a class, a property, a
table of handlers) runs the new code. This is done in a process that ends afterwards.
"""

import ast
import gc
import importlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Final

from harness.mutants.changes import Function, Module, codes_in

NOTE: Final = "__note_that_it_is_reached__"


class Loaded:
    """All loaded functions of some modules."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self._functions: defaultdict[tuple[str, int, str], list[FunctionType]] = defaultdict(list)
        modules = list(modules)
        by_path = {str(one.root / one.file): one.file for one in modules}
        for one in modules:
            importlib.import_module(one.name)
        gc.unfreeze()  # what is frozen is not told
        for found in gc.get_objects():
            if type(found) is FunctionType and found.__code__.co_filename in by_path:
                code = found.__code__
                place = (by_path[code.co_filename], code.co_firstlineno, code.co_qualname)
                self._functions[place].append(found)

    def of(self, function: Function) -> list[FunctionType]:
        name = function.name.partition("@")[0]
        return self._functions[function.module.file, function.first_line, name]

    def replace(self, function: Function, code: CodeType) -> None:
        found = self.of(function)
        assert found, f"{function.key} is not loaded"
        for one in found:
            one.__code__ = code

    def let_note(self, module: Module, note: Callable[[str], object]) -> None:
        """Let each function of a module say its key whenever it is called."""
        for function in module.functions.values():
            call = ast.parse(f"{NOTE}({function.key!r})").body[0]
            ast.copy_location(call, function.node)
            function.node.body.insert(1 if ast.get_docstring(function.node) else 0, call)
        codes = {(one.co_firstlineno, one.co_qualname): one for one in codes_in(module.compiled())}
        for function in module.functions.values():
            name = function.name.partition("@")[0]
            for found in self.of(function):
                found.__globals__[NOTE] = note
                found.__code__ = codes[function.first_line, name]
