"""Lists the places where an object is assembled in a way that hides what a process consists of.

`python -m tests.project.assembly` prints all of them, each with its file and line. There are four faults:

- `wide`: a constructor with more than 7 arguments: those of `__init__`, without `self`. Of a dataclass, Struct or
  NamedTuple, only fields that are collaborators count;
- `optional`: a collaborator with a default in a constructor (None, or a lambda), although every call in the source
  gives it: only tests leave it out, and its branch for None runs in tests only;
- `late`: an attribute that holds a callable, and that another object sets;
- `unbound`: a collaborator that is None, or a lambda, until a method other than `__init__` sets it to its argument.

A collaborator is a callable, or an object of a class of `PACKAGES` that has methods other than properties and is not
made from its fields.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.places import KUBE_CLIENT, ROOT

#: The packages of the processes that a cluster runs.
PACKAGES: Final = (ROOT / "src" / "agent_scheduler", KUBE_CLIENT / "src" / "kube_client")
#: The largest number of arguments of a constructor.
MOST: Final = 7
#: Bases of classes that are made from their fields.
_FROM_FIELDS: Final = frozenset({"NamedTuple", "Struct"})


class Fault(NamedTuple):
    kind: str
    path: str
    line: int
    #: The class, with the argument or attribute; or the attribute as it is set.
    name: str
    more: str = ""

    def __str__(self) -> str:
        return f"{self.kind:9}{self.path}:{self.line}: {self.name}{self.more}"


class Argument(NamedTuple):
    name: str
    annotation: ast.expr | None
    default: ast.expr | None


@dataclass(slots=True)
class Class:
    module: str
    path: str
    node: ast.ClassDef
    arguments: tuple[Argument, ...]
    from_fields: bool
    #: The arguments that each call in the source gives, by name; None for a call with `*` or `**`.
    calls: list[frozenset[str] | None] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def has_methods(self) -> bool:
        """Whether it does something, so that it is no plain value."""
        return any(
            isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            and not each.name.startswith("__")
            and not any(ast.unparse(by) in ("property", "staticmethod") for by in each.decorator_list)
            for each in self.node.body
        )

    @property
    def is_value(self) -> bool:
        bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in self.node.bases}
        return self.from_fields or bool(bases & {"Enum", "StrEnum", "IntEnum", "Exception"})


@dataclass(slots=True)
class Module:
    name: str
    path: str
    tree: ast.Module
    #: Local name -> module and name of what it was imported from, or the module itself with an empty name.
    imported: Mapping[str, tuple[str, str]]


@dataclass(slots=True)
class House:
    """The parsed source: its modules by name, and its classes by module and name."""

    modules: dict[str, Module]
    classes: dict[tuple[str, str], Class]
    #: Names of callable types, such as `Choose = Callable[...]`, by module.
    callables: set[tuple[str, str]]

    def found(self, module: Module, expression: ast.expr) -> Class | None:
        """Return the class that an expression names in a module."""
        if isinstance(expression, ast.Subscript):
            return self.found(module, expression.value)
        if isinstance(expression, ast.Name):
            where = module.imported.get(expression.id, (module.name, expression.id))
            return self.classes.get(where)
        if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            of = module.imported.get(expression.value.id)
            if of is not None:
                whole = f"{of[0]}.{of[1]}" if of[1] else of[0]
                return self.classes.get((whole, expression.attr))
        return None

    def is_collaborator(self, module: Module, annotation: ast.expr | None) -> bool:
        """Return whether a type is a callable, or a class of `PACKAGES` that does something."""
        if isinstance(annotation, ast.BinOp):
            return self.is_collaborator(module, annotation.left) or self.is_collaborator(module, annotation.right)
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        if annotation is None or isinstance(annotation, ast.Constant):
            return False
        named = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        if self.is_callable(module, named):
            return True
        found = self.found(module, annotation)
        return found is not None and found.has_methods and not found.is_value

    def is_callable(self, module: Module, annotation: ast.expr) -> bool:
        """Return whether a type is `Callable`, a list of these, or a name for it."""
        if isinstance(annotation, ast.Subscript):
            inner = annotation.slice
            if isinstance(annotation.value, ast.Name) and annotation.value.id == "list":
                return self.is_callable(module, inner)
            return self.is_callable(module, annotation.value)
        if not isinstance(annotation, ast.Name):
            return False
        where = module.imported.get(annotation.id, (module.name, annotation.id))
        return annotation.id == "Callable" or where in self.callables


def house(packages: Iterable[Path] = PACKAGES) -> House:
    """Parse the sources of the packages in these folders."""
    modules: dict[str, Module] = {}
    for source, file in ((each.parent, file) for each in packages for file in sorted(each.rglob("*.py"))):
        parts = file.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        tree = ast.parse(file.read_text(encoding="utf-8"))
        path = str(file.relative_to(source))
        modules[name] = Module(name, path, tree, dict(_imports(tree, name, is_package)))
    found = House(modules, {}, set())
    for module in modules.values():
        for statement in module.tree.body:
            if isinstance(statement, ast.Assign) and ast.unparse(statement.value).startswith("Callable["):
                found.callables.update((module.name, ast.unparse(each)) for each in statement.targets)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                found.classes[module.name, node.name] = _class(module, node)
    _inherit(found)
    for module in modules.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and (called := found.found(module, node.func)) is not None:
                called.calls.append(_given(called, node))
    return found


def _imports(tree: ast.Module, name: str, is_package: bool) -> Iterator[tuple[str, tuple[str, str]]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = name.split(".")[: len(name.split(".")) - node.level + is_package]
                base = ".".join([*up, *([node.module] if node.module else [])])
            for alias in node.names:
                yield alias.asname or alias.name, (base, alias.name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name, (alias.name, "")


def _class(module: Module, node: ast.ClassDef) -> Class:
    decorators = {ast.unparse(each).split("(")[0].split(".")[-1] for each in node.decorator_list}
    bases = {ast.unparse(base).split("[")[0].split(".")[-1] for base in node.bases}
    init = next((each for each in node.body if _is_init(each)), None)
    if isinstance(init, ast.FunctionDef):
        return Class(module.name, module.path, node, tuple(_arguments(init)), from_fields=False)
    from_fields = "dataclass" in decorators or bool(bases & _FROM_FIELDS)
    return Class(module.name, module.path, node, tuple(_fields(node)) if from_fields else (), from_fields)


def _is_init(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__init__"


def _arguments(init: ast.FunctionDef) -> Iterator[Argument]:
    given = init.args
    positional = [*given.posonlyargs, *given.args][1:]
    without = len(positional) - len(given.defaults)
    for number, each in enumerate(positional):
        yield Argument(each.arg, each.annotation, given.defaults[number - without] if number >= without else None)
    for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield Argument(each.arg, each.annotation, default)


def _fields(node: ast.ClassDef) -> Iterator[Argument]:
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            kind = ast.unparse(each.annotation)
            of_class = kind.startswith("ClassVar")
            made = isinstance(each.value, ast.Call) and any(
                word.arg == "init" and ast.unparse(word.value) == "False" for word in each.value.keywords
            )
            if not (of_class or made):
                yield Argument(each.target.id, each.annotation, each.value)


def _inherit(found: House) -> None:
    """Give classes without a constructor that of their base."""
    for each in found.classes.values():
        at, seen = each, {id(each)}
        while not at.arguments and not any(map(_is_init, at.node.body)):
            module = found.modules[at.module]
            base = next((of for base in at.node.bases if (of := found.found(module, base))), None)
            if base is None or id(base) in seen:
                break
            seen.add(id(base))
            at = base
        if at is not each and not at.from_fields:
            each.calls = at.calls


def _given(called: Class, call: ast.Call) -> frozenset[str] | None:
    if any(isinstance(each, ast.Starred) for each in call.args) or any(word.arg is None for word in call.keywords):
        return None
    names = [each.name for each in called.arguments[: len(call.args)]]
    return frozenset([*names, *(word.arg for word in call.keywords if word.arg is not None)])


# ---- the faults


def wide(found: House) -> Iterator[Fault]:
    for each in found.classes.values():
        module, given = found.modules[each.module], each.arguments
        if each.from_fields:
            given = tuple(by for by in given if found.is_collaborator(module, by.annotation))
        if len(given) > MOST:
            yield Fault("wide", each.path, each.node.lineno, each.name, f": {len(given)} arguments")


def optional(found: House) -> Iterator[Fault]:
    for each in found.classes.values():
        if each.from_fields or not each.calls:
            continue
        module = found.modules[each.module]
        for argument in each.arguments:
            if not found.is_collaborator(module, argument.annotation):
                continue
            default = argument.default
            is_none = isinstance(default, ast.Constant) and default.value is None
            if not (is_none or isinstance(default, ast.Lambda)):
                continue
            if all(given is not None and argument.name in given for given in each.calls):
                yield Fault("optional", each.path, each.node.lineno, f"{each.name}.{argument.name}")


def _callbacks(found: House) -> frozenset[str]:
    """Return the names of public attributes that hold callables."""
    return frozenset(
        node.target.attr
        for each in found.classes.values()
        for node in ast.walk(each.node)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Attribute)
        and ast.unparse(node.target.value) == "self"
        and found.is_callable(found.modules[each.module], node.annotation)
        and not node.target.attr.startswith("_")
    )


def late(found: House) -> Iterator[Fault]:
    callbacks = _callbacks(found)
    for module in found.modules.values():
        for node in ast.walk(module.tree):
            for target in _targets(node):
                if (
                    isinstance(target, ast.Attribute)
                    and target.attr in callbacks
                    and ast.unparse(target.value) not in ("self", "cls")
                ):
                    yield Fault("late", module.path, target.lineno, ast.unparse(target))


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else (target,)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        yield node.target
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
        yield node.func.value


def unbound(found: House) -> Iterator[Fault]:
    for each in found.classes.values():
        module = found.modules[each.module]
        init = next((node for node in each.node.body if _is_init(node)), None)
        if init is None:
            continue
        empty: dict[str, int] = {}
        for node in ast.walk(init):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Attribute):
                value = node.value
                is_none = isinstance(value, ast.Constant) and value.value is None
                if (is_none or isinstance(value, ast.Lambda)) and found.is_collaborator(module, node.annotation):
                    empty[node.target.attr] = node.lineno
        for name, line in empty.items():
            if any(name in _set_from_argument(method) for method in each.node.body if method is not init):
                yield Fault("unbound", each.path, line, f"{each.name}.{name}")


def _set_from_argument(method: ast.stmt) -> frozenset[str]:
    """Return the attributes that a method sets to one of its arguments."""
    if not isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
        return frozenset()
    arguments = {each.arg for each in (*method.args.args, *method.args.kwonlyargs)}
    found: set[str] = set()
    for node in ast.walk(method):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs: Iterable[tuple[ast.expr, ast.expr]] = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = zip(target.elts, node.value.elts, strict=True)
                for to, value in pairs:
                    if isinstance(to, ast.Attribute) and isinstance(value, ast.Name) and value.id in arguments:
                        found.add(to.attr)
    return frozenset(found)


@cache
def faults() -> Sequence[Fault]:
    """Return all faults of the scheduler, by kind and place."""
    found = house()
    return sorted([*wide(found), *optional(found), *late(found), *unbound(found)])


def main() -> int:
    for each in faults():
        print(each)
    for kind, count in sorted(Counter(each.kind for each in faults()).items()):
        print(f"{kind}: {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
