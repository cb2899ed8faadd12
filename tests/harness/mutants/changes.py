"""The small changes of one function that the tests should notice, made in its syntax tree.

A function here is one that stands in a module or in a class; what is defined within it belongs to
it. Assertions stay as they are: they hold in a correct program, so hardly a test can tell.
"""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import Any, Final

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef

COMPARED: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),  # codespell:ignore notin
    ast.NotIn: (ast.In,),  # codespell:ignore notin
}
"""A bound moved by one, and the comparison turned round."""
TURNED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}
OTHER_END: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
REMOVED: Final = (ast.Expr, ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break)
SHOWN_MAX: Final = 100


@dataclass(frozen=True)
class Change:
    """One field of one node of the tree gets another value."""

    node: ast.AST
    field: str
    value: Any
    line: int
    text: str
    """What is changed, in words that do not depend on where it stands."""

    def swap(self) -> "Change":
        """Make the change, and return the one that takes it back."""
        before = getattr(self.node, self.field)
        setattr(self.node, self.field, self.value)
        return Change(self.node, self.field, before, self.line, self.text)


@dataclass(frozen=True)
class Function:
    """A function of the product, in the tree of its module."""

    module: "Module"
    name: str
    node: AnyFunction

    @property
    def key(self) -> str:
        return f"{self.module.file}:{self.name}"

    @property
    def first_line(self) -> int:
        """As the code object has it: that of the first decorator."""
        return min([self.node.lineno, *(one.lineno for one in self.node.decorator_list)])

    @cached_property
    def digest(self) -> str:
        """Of its text without comments: the changes of the same text are the same."""
        text = ast.unparse(self.node)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @cached_property
    def changes(self) -> dict[str, Change]:
        """By their text, which is followed by a number where the same one is possible twice."""
        seen: Counter[str] = Counter()
        found = {}
        for change in changes_of(self.node):
            seen[change.text] += 1
            number = seen[change.text]
            found[change.text if number == 1 else f"{change.text} #{number}"] = change
        return found

    def changed(self, change: Change) -> CodeType:
        """The code of this function with the change; the tree is as before afterwards."""
        back = change.swap()
        try:
            return self.module.code_of(self)
        finally:
            back.swap()


@dataclass(frozen=True)
class Module:
    """A module of the product by its path below the root."""

    file: str
    tree: ast.Module
    root: Path

    @classmethod
    def read(cls, file: str, root: Path) -> "Module":
        return cls(file, ast.parse((root / file).read_text(encoding="utf-8")), root)

    @property
    def name(self) -> str:
        """As it is imported: the first folder is a source root."""
        return self.file.removesuffix(".py").partition("/")[2].replace("/", ".")

    @cached_property
    def functions(self) -> dict[str, Function]:
        found = [Function(self, name, node) for name, node in _functions(self.tree.body, "")]
        return {one.name: one for one in found}

    def compiled(self) -> CodeType:
        """As it is imported: some tests look at where a failure comes from."""
        tree = ast.fix_missing_locations(self.tree)
        return compile(tree, str(self.root / self.file), "exec", dont_inherit=True)

    def code_of(self, function: Function) -> CodeType:
        whole = self.compiled()
        return next(
            code
            for code in codes_in(whole)
            if (code.co_qualname, code.co_firstlineno)
            == (function.name.partition("@")[0], function.first_line)
        )


def codes_in(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from codes_in(one)


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, AnyFunction]]:
    seen: Counter[str] = Counter()
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, AnyFunction) and _does_something(node):
            seen[node.name] += 1  # a property and its setter have one name
            number = f"@{seen[node.name]}" if seen[node.name] > 1 else ""
            yield f"{prefix}{node.name}{number}", node


def _does_something(node: AnyFunction) -> bool:
    """Not a declaration of a protocol or an overload, whose body is `...` or a docstring."""
    return not all(
        isinstance(one, ast.Pass)
        or (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
        for one in node.body
    )


def changes_of(function: AnyFunction) -> Iterator[Change]:
    """In the order of the text."""
    start = 1 if ast.get_docstring(function, clean=False) is not None else 0
    body = function.body
    if not isinstance(body[start], ast.Return):
        early = [*body[:start], _at(ast.Return(), body[start]), *body[start:]]
        yield Change(function, "body", early, function.lineno, "returns at once")
    yield from _removed(function, "body", body)
    for statement in body[start:]:
        yield from _in_statement(statement)


def _in_statement(node: ast.AST) -> Iterator[Change]:
    if isinstance(node, ast.Assert):
        return
    for field, value in ast.iter_fields(node):
        if isinstance(value, list):
            yield from _removed(node, field, value)
    yield from _in_node(node)
    if isinstance(node, ast.Raise) or _is_annotation(node):
        return  # the words of an error are not behaviour that a program depends on
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Constant) and isinstance(child.value, bool | int):
            yield _constant(child, node)
        yield from _in_statement(child)


def _is_annotation(node: ast.AST) -> bool:
    return isinstance(node, ast.arguments | ast.ImportFrom | ast.Import)


def _removed(node: ast.AST, field: str, body: list[Any]) -> Iterator[Change]:
    for at, one in enumerate(body):
        if _is_done(one) or _is_stored(one):
            without = [*body[:at], _at(ast.Pass(), one), *body[at + 1 :]]
            yield Change(node, field, without, one.lineno, f"`{_shown(one)}` is removed")


def _is_done(node: ast.AST) -> bool:
    if not isinstance(node, REMOVED) or _is_docstring(node):
        return False
    # Without `super` a function has no cell for its class, so it cannot take the other's place.
    return not any(isinstance(one, ast.Name) and one.id == "super" for one in ast.walk(node))


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_stored(node: ast.AST) -> bool:
    """An assignment to something that others see. Without one to a name the function would end in
    an error at once, which any test notices."""
    return isinstance(node, ast.Assign) and all(
        isinstance(one, ast.Attribute | ast.Subscript) for one in node.targets
    )


def _in_node(node: ast.AST) -> Iterator[Change]:
    match node:
        case ast.Compare():
            yield from _compared(node)
        case ast.BoolOp():
            other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield _replaced(node, "op", other, node)
        case ast.BinOp() | ast.AugAssign() if type(node.op) in TURNED and not _is_text(node):
            yield _replaced(node, "op", TURNED[type(node.op)](), node)
        case ast.If() | ast.IfExp() | ast.While():
            yield from _condition(node)
        case ast.comprehension():
            for at, test in enumerate(node.ifs):
                ifs = [*node.ifs[:at], *node.ifs[at + 1 :]]
                text = f"condition `{_shown(test)}` is dropped"
                yield Change(node, "ifs", ifs, test.lineno, text)
        case ast.Call(func=ast.Name(id=name)) if name in OTHER_END:
            yield _replaced(node.func, "id", OTHER_END[name], node)
        case ast.UnaryOp(op=ast.Not()):
            # `not not x` is as true as `x`, and stands where an expression may stand.
            twice = _at(ast.UnaryOp(op=ast.Not(), operand=node.operand), node.operand)
            yield _replaced(node, "operand", twice, node, f"`{_shown(node)}` loses its not")
        case _:
            pass


def _is_text(node: ast.BinOp | ast.AugAssign) -> bool:
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
    return any(
        isinstance(one, ast.JoinedStr)
        or (isinstance(one, ast.Constant) and isinstance(one.value, str | bytes))
        for one in parts
    )


def _compared(node: ast.Compare) -> Iterator[Change]:
    for at, op in enumerate(node.ops):
        for other in COMPARED[type(op)]:
            yield _replaced(node, "ops", [*node.ops[:at], other(), *node.ops[at + 1 :]], node)


def _condition(node: ast.If | ast.IfExp | ast.While) -> Iterator[Change]:
    """Turned round where no other change does it."""
    if isinstance(node.test, ast.Compare | ast.UnaryOp):
        return
    turned = _at(ast.UnaryOp(op=ast.Not(), operand=node.test), node.test)
    text = f"condition `{_shown(node.test)}` is turned round"
    yield Change(node, "test", turned, node.test.lineno, text)


def _constant(node: Any, around: ast.AST) -> Change:
    other = (not node.value) if isinstance(node.value, bool) else node.value + 1
    text = f"`{node.value}` becomes `{other}` in `{_shown(around)}`"
    return Change(node, "value", other, node.lineno, text)


def _replaced(node: Any, field: str, value: Any, whole: Any, text: str = "") -> Change:
    """The text shows the whole expression before and after."""
    change = Change(node, field, value, whole.lineno, "")
    before = _shown(whole)
    back = change.swap()
    after = _shown(whole)
    back.swap()
    return Change(node, field, value, whole.lineno, text or f"`{before}` becomes `{after}`")


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 3]}..."


def _at(new: Any, old: ast.AST) -> Any:
    return ast.copy_location(new, old)
