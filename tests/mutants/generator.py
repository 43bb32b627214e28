"""Generates mutants: one small fault at a time, from the syntax tree of a function.

The kinds of fault are the usual ones of mutation testing (R. A. DeMillo, R. J. Lipton and F. G. Sayward, "Hints on test
data selection", 1978): a comparison, a connective, an arithmetic operator or a constant is replaced by a similar one, a
condition is negated or left out, a statement is deleted, a value is not returned. Only code inside functions changes.
Texts (docstrings, messages, names) and annotations stay, because a test of every wording would only repeat the source.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.BitOr: ("|", "&"),
    ast.BitAnd: ("&", "|"),
}
_SIBLINGS = {"min": "max", "max": "min", "any": "all", "all": "any"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Bytes `start` to `end` of the file's UTF-8 text become `new`. `line` is counted from 1."""

    start: int
    end: int
    new: str
    line: int
    function: str
    kind: str


class Source:
    """A module's text, and the positions of its nodes in it."""

    def __init__(self, text: str) -> None:
        self.bytes = text.encode()
        self.tree = ast.parse(text)
        self._lines = [0]
        for line in self.bytes.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (self._lines[node.lineno - 1] + node.col_offset, self._lines[node.end_lineno - 1] + node.end_col_offset)

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.bytes[start:end].decode()

    def edited(self, edit: Edit) -> str:
        return (self.bytes[: edit.start] + edit.new.encode() + self.bytes[edit.end :]).decode()


def edits(source: Source, functions: Sequence[str] | None = None) -> list[Edit]:
    """Return every edit of `source`, in the order of the text.

    `functions`: only of these, by dotted names in the module. An edit need not compile (`source.edited` returns the
    edited module).
    """
    found = {
        edit
        for name, function in functions_of(source.tree)
        if functions is None or name in functions
        for edit in _of_function(source, name, function)
    }
    return sorted(found)


def functions_of(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yield functions of modules and classes by dotted name. Inner functions belong to their function."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, Function):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from functions_of(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.stmt):
            yield from functions_of(child, prefix)


def _of_function(source: Source, name: str, function: Function) -> Iterator[Edit]:
    annotations = {
        id(node) for each in ast.walk(function) for annotation in _annotations(each) for node in ast.walk(annotation)
    }
    defaults = {
        id(node)
        for each in (*function.args.defaults, *filter(None, function.args.kw_defaults))
        for node in ast.walk(each)
    }
    decorators = {id(node) for each in function.decorator_list for node in ast.walk(each)}
    left_out = annotations | defaults | decorators
    for node in ast.walk(function):
        if id(node) in left_out:
            continue
        for (start, end), new, kind in _of_node(source, node):
            yield Edit(start, end, new, getattr(node, "lineno", 0), name, kind)


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.AnnAssign) or (isinstance(node, ast.arg) and node.annotation is not None):
        yield node.annotation
    elif isinstance(node, Function) and node.returns is not None:
        yield node.returns


_Found = tuple[tuple[int, int], str, str]


def _of_node(source: Source, node: ast.AST) -> Iterator[_Found]:
    match node:
        case ast.Compare():
            yield from _comparison(source, node)
        case ast.BoolOp():
            yield from _connective(source, node)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            if not (_is_text(left) or _is_text(right)):
                old, new = _ARITHMETIC[type(op)]
                yield _between(source, left, right, old, new), new, f"{old} to {new}"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield source.span(node), f"({source.text(operand)})", "not left out"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            yield source.span(test), f"(not ({source.text(test)}))", "condition negated"
        case ast.comprehension(ifs=[test]):
            yield source.span(test), "True", "filter left out"
        case ast.Constant(value=bool(value)):
            yield source.span(node), str(not value), f"{value} to {not value}"
        case ast.Constant(value=int(value)):
            yield source.span(node), str(value + 1), f"{value} to {value + 1}"
        case ast.Call(func=ast.Name(id=called) as function) if called in _SIBLINGS:
            yield source.span(function), _SIBLINGS[called], f"{called} to {_SIBLINGS[called]}"
        case ast.Return(value=ast.expr() as value):
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield source.span(value), "None", "value not returned"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield source.span(node), "pass", "call left out"
        case ast.Raise() | ast.Delete():
            yield source.span(node), "pass", "statement left out"
        case ast.AugAssign(target=target):
            yield source.span(node), "pass", "statement left out"
            if type(node.op) in _ARITHMETIC:
                old, new = _ARITHMETIC[type(node.op)]
                yield (_between(source, target, node.value, f"{old}=", f"{new}="), f"{new}=", f"{old}= to {new}=")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield source.span(node), "pass", "assignment left out"
        case ast.Continue():
            yield source.span(node), "break", "continue to break"
        case ast.Break():
            yield source.span(node), "continue", "break to continue"


def _comparison(source: Source, node: ast.Compare) -> Iterator[_Found]:
    left = node.left
    for op, right in zip(node.ops, node.comparators, strict=True):
        old, new = _COMPARISONS[type(op)]
        yield _between(source, left, right, old, new), new, f"{old} to {new}"
        left = right


def _connective(source: Source, node: ast.BoolOp) -> Iterator[_Found]:
    old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
    for left, right in zip(node.values, node.values[1:], strict=False):
        yield _between(source, left, right, old, new), new, f"{old} to {new}"
    for value in node.values:
        if _is_empty(value):
            continue  # `x or {}` is how a missing value is read; the edit above covers the rest of it
        neutral = "True" if old == "and" else "False"
        yield source.span(value), neutral, f"operand of {old} left out"


def _between(source: Source, left: ast.expr, right: ast.expr, old: str, new: str) -> tuple[int, int]:
    """Return the position of the operator `old` between its operands, past comments and brackets."""
    start, end = source.span(left)[1], source.span(right)[0]
    gap = source.bytes[start:end]
    at = gap.find(old.encode())
    return (start + at, start + at + len(old.encode())) if at >= 0 else (start, start)


def _is_empty(node: ast.expr) -> bool:
    match node:
        case ast.Constant() | ast.Dict(keys=[]) | ast.List(elts=[]) | ast.Tuple(elts=[]):
            return True
    return False


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
