"""Generates faults in source files, and lists those that no test detects: `python -m tests.mutants.generated`.

A fault is first tried with the test files of its own module, then with those of its package, then with each path of
`--also`, in this order, until a test fails. A survivor is a missing test, or an equivalent fault: a program with the
same behavior. Exit codes: 0, or 2 if a test fails without any fault.

   python -m tests.mutants.generated --files src/agent_scheduler/engine/queues/book.py
   python -m tests.mutants.generated --changed origin/main --sample 20
   python -m tests.mutants.generated --files src/agent_scheduler --sample 100 --seed 7
"""

from __future__ import annotations

import argparse
import ast
import runpy
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.places import EMBEDDED, ROOT, SOURCES

from . import trying
from .generator import Edit, Source, edits, functions_of

#: Folder of a package -> the folder of its tests.
_SHIPPED = {
    "src/agent_scheduler": "tests/unit",
    "packages/embedded-kubernetes/src/embedded_kubernetes": "packages/embedded-kubernetes/tests/embedded",
    "packages/kube-client/src/kube_client": "packages/kube-client/tests/kube",
    "packages/apimachinery/src/apimachinery": "packages/apimachinery/tests",
    "bench/src/bench": "tests/bench",
}
#: Folder of tests -> the modules of the embedded cluster that it tests.
_FOLDERS = runpy.run_path(str(EMBEDDED / "tests" / "embedded" / "__init__.py"))["FOLDERS"]
#: Package -> the folder of tests/features whose processes contain it, if that has another name.
_FEATURES = {"binding": "fastpath", "cluster": "fastpath"}


_NAMES = ", ".join(f"{source.relative_to(ROOT)}/" for source in SOURCES)


@dataclass(frozen=True, slots=True)
class Fault:
    path: str
    edit: Edit
    old: str

    def __str__(self) -> str:
        edit = self.edit
        old, new = (" ".join(text.split())[:60] for text in (self.old, edit.new))
        return f"{self.path}:{edit.line} {edit.function}: {edit.kind}: {old!r} -> {new!r}"


def faults_of(paths: Iterable[str], functions: dict[str, set[str]] | None = None) -> list[Fault]:
    """Return all faults of the files `paths`; with `functions`, only of those that it names for a file."""
    found: list[Fault] = []
    for path in paths:
        source = Source((ROOT / path).read_text())
        names = None if functions is None else sorted(functions[path])
        found += [Fault(path, edit, source.bytes[edit.start : edit.end].decode()) for edit in edits(source, names)]
    return found


def files_under(paths: Iterable[str]) -> list[str]:
    """Return Python files of all distributions, by path from the checkout's root.

    Raises ValueError for another path.
    """
    found = []
    for path in paths:
        place = (ROOT / path).resolve()
        if not place.exists() or not any(place.is_relative_to(source) for source in SOURCES):
            raise ValueError(f"{path} is no file or folder of {_NAMES}")
        files = [place] if place.is_file() else sorted(place.rglob("*.py"))
        found += [file.relative_to(ROOT).as_posix() for file in files]
    return found


def sampled(faults: Sequence[Fault], count: int, seed: str) -> list[Fault]:
    """Return `count` faults that compile, or all; the same ones for the same seed."""
    chosen = trying.sampled(faults, count, seed, fits=compiles)
    return sorted(chosen, key=lambda fault: (fault.path, fault.edit))


def compiles(fault: Fault) -> bool:
    try:
        ast.parse(edited(fault))
    except SyntaxError:
        return False
    return True


def edited(fault: Fault) -> str:
    """Return the whole file with the fault in it."""
    return Source((ROOT / fault.path).read_text()).edited(fault.edit)


def changed_functions(base: str) -> dict[str, set[str]]:
    """Return the functions with lines that differ from the commit `base`, by file.

    Raises ValueError if there is no such commit.
    """
    command = ["git", "diff", "--unified=0", "--no-color", base, "--", *_SHIPPED]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"git cannot compare with {base!r}: {done.stderr.strip().splitlines()[0]}")
    diff = done.stdout
    lines: dict[str, set[int]] = {}
    path = ""
    for line in diff.splitlines():
        if line.startswith("+++ "):
            path = line.removeprefix("+++ ").removeprefix("b/")
        elif line.startswith("@@") and path.endswith(".py"):
            start, _, count = line.split("+")[1].split(" ")[0].partition(",")
            lines.setdefault(path, set()).update(range(int(start), int(start) + int(count or 1)))
    return {
        path: {
            name
            for name, function in functions_of(ast.parse((ROOT / path).read_text()))
            if not numbers.isdisjoint(range(function.lineno, (function.end_lineno or 0) + 1))
        }
        for path, numbers in lines.items()
    }


def stages_of(path: str, also: Sequence[str], root: Path = ROOT) -> list[list[str]]:
    """Return paths of tests for a fault in the file `path`, in stages.

    They are those of its module, of its package, of whole processes that contain the package, and then those of `also`.
    Modules of `embedded_kubernetes` are tested in the folders that the `__init__.py` of its tests lists.
    """
    shipped = next(each for each in _SHIPPED if path.startswith(f"{each}/"))
    inner = Path(path).relative_to(shipped)
    name = inner.parts[0].removesuffix(".py")
    rooms = _FOLDERS.items() if shipped.endswith("/embedded_kubernetes") else ()
    room = next((Path(room) for room, names in rooms if name in names), inner.parent)
    folder, stem = root / _SHIPPED[shipped] / room, inner.stem
    # A package may be tested like a module.
    while not folder.is_dir():
        folder, stem = folder.parent, folder.name
    own = sorted(file for pattern in ("", "_*") for file in folder.glob(f"test_{stem}{pattern}.py"))
    rest = sorted(file for file in folder.glob("test_*.py") if file not in own)
    features = root / "tests" / "features" / _FEATURES.get(name, name)
    whole = sorted(features.glob("test_*.py")) if shipped == "src/agent_scheduler" else []
    stages = [[file.relative_to(root).as_posix() for file in files] for files in (own, rest, whole)]
    return [stage for stage in (*stages, *([each] for each in also)) if stage]


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        functions = changed_functions(options.changed) if options.changed else None
        faults = faults_of(files_under(options.files) if functions is None else functions, functions)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if options.sample is not None:
        faults = sampled(faults, options.sample, options.seed)
    trials = [trying.Trial(str(each), {each.path: edited(each)}, stages_of(each.path, options.also)) for each in faults]
    trying.verdicts_of(trials, options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants.generated",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--files", nargs="+", metavar="PATH", help=f"faults of these files or folders of {_NAMES}")
    chosen.add_argument("--changed", metavar="COMMIT", help="faults of functions that differ from this commit")
    parser.add_argument("--also", nargs="*", default=[], metavar="PATH", help="further tests, tried in this order")
    trying.add_arguments(parser, timeout=60.0)
    return parser


if __name__ == "__main__":
    sys.exit(main())
