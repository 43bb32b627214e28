"""Writes docs/promises.md: each promise of the documentation, and the tests that fail if it is broken.

   python -m tests.project.promises

Promises are the rows of tables whose first cell is a code such as S1, L4, GATE-3 or JOB-2, in the pages of `PAGES`. A
test names the promises that it verifies with `@pytest.mark.promise("S1", "L4")`; a file, with `pytestmark`. The tests
are parsed and not imported.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import DOCS, KUBE_CLIENT, ROOT, TESTS

PAGES = ("reliability.md", "gates.md", "controllers.md")
PAGE = DOCS / "promises.md"
_CODE = re.compile(r"(?:S|L|GATE-|JOB-)\d+")
_ROW = re.compile(rf"^\| ({_CODE.pattern}(?:, {_CODE.pattern})*) \| (.+?) \|", re.MULTILINE)
#: Codes, and the rest of a case before the expected text.
_CASE = re.compile(r"((?:[SL]\d+ )+)([a-z][^=\n]*?)(?: =>.*)?$")
_HEAD = """\
# Promises and their tests

For people who change a rule: which tests fail if a promise is broken. Made by `make promises` of the tables in
{pages}, and of the marker `promise` of the tests; [testing.md](testing.md) says how the tests are run.
"""


def promises() -> dict[str, tuple[str, str]]:
    """Return code -> the page and the text of its row, in the order of the pages."""
    found = {}
    for name in PAGES:
        for codes, text in _ROW.findall((DOCS / name).read_text()):
            for code in codes.split(", "):
                found[code] = (name, text)
    return found


def marked() -> dict[str, list[tuple[str, str]]]:
    """Return code -> tests that name it: path from the checkout's root, and name in the file or "" for the file."""
    found = defaultdict(list)
    folders = (TESTS, KUBE_CLIENT / "tests")
    for path in sorted(path for folder in folders for path in folder.rglob("test_*.py")):
        text = path.read_text()
        if "mark.promise" in text:
            tree = ast.parse(text)
            for code, name in (*_of_body(tree.body, ""), *_of_heads(tree)):
                found[code].append((path.relative_to(ROOT).as_posix(), name))
    return dict(found)


def _of_body(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, str]]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                for code in _codes(node.decorator_list):
                    yield code, f"{prefix}{node.name}"
                if isinstance(node, ast.ClassDef):
                    yield from _of_body(node.body, f"{prefix}{node.name}::")
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value):
                for code in _codes([value]):
                    yield code, prefix.removesuffix("::")


def _of_heads(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the codes of cases whose texts begin with them, as in tests/sim/test_judges.py."""
    for node in ast.walk(tree):
        head = _CASE.match(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
        if head is not None:
            for code in head[1].split():
                yield code, head[2]


def _codes(nodes: list[ast.expr]) -> Iterator[str]:
    for node in (each for top in nodes for each in ast.walk(top)):
        match node:
            case ast.Call(func=ast.Attribute(attr="promise"), args=args):
                yield from (each.value for each in args if isinstance(each, ast.Constant))


def page() -> str:
    """Return the text of docs/promises.md."""
    pages = ", ".join(f"[{name}]({name})" for name in PAGES)
    lines = [_HEAD.format(pages=pages)]
    tests = marked()
    for code, (name, text) in promises().items():
        lines.append(f"## {code}\n\n{text} ([{name}]({name}))\n")
        by_file: dict[str, list[str]] = {}
        for path, test in tests.get(code, []):
            by_file.setdefault(path, []).append(test)
        for path, names in by_file.items():
            lines.append(f"- [{path}](../{path})")
            lines += [f"  - `{each}`" for each in names if each]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main(page_file: Path = PAGE) -> None:
    page_file.write_text(page())


if __name__ == "__main__":
    main()
