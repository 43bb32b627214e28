"""A copy of the tree with a mutant, and the tests that run there.

Everything runs with the copy as the working directory and the sources of its distributions before installed ones. The
imports are checked, because a mutant that is not imported would survive.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path

from tests.support.needed import SHARED
from tests.support.places import ROOT, SOURCES

from .catalogue import SHIPPED

#: The parts of the tree that the tests need.
_FOLDERS = ("src", "packages", "bench", "tests", "docs", "config")
_COPIED = (*_FOLDERS, "conftest.py", "pyproject.toml", "CONTRIBUTING.md")

#: Factor of the time limit of one test for a run of many.
RUN_TIMEOUTS = 20

#: Exit codes of pytest; every other one means that it could not run the tests.
_PASSED, _FAILED = 0, 1

_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+?::.+?)(?: - (.*))?$", re.MULTILINE)
_IMPORTED = "import importlib, sys; [print(importlib.import_module(name).__file__) for name in sys.argv[1:]]"


@dataclass(frozen=True, slots=True)
class TestRun:
    """A run of tests. `failed` names the first failed test, empty when all passed. `output` is pytest's output."""

    __test__ = False

    failed: str
    why: str
    output: str
    hung: bool = False


class CannotRun(Exception):
    """The tests ended without a result. The message has the output's last lines."""


class Scratch:
    """One copy. Owner: one job at a time, and it holds one mutant at a time."""

    def __init__(self, root: Path) -> None:
        #: As Python names the modules that it imports from it, with links resolved.
        self.root = root.resolve()

    @classmethod
    def of_the_tree(cls, root: Path) -> Scratch:
        root.mkdir()
        for name in _COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, root / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
            else:
                shutil.copy2(source, root / name)
        # Recordings are beside the copies as they are beside the checkout.
        beside = root.parent / SHARED.name
        if SHARED.exists() and not beside.exists():
            beside.symlink_to(SHARED)
        return cls(root)

    def copy(self, root: Path) -> Scratch:
        """Return another copy, with the bytecode of this one."""
        shutil.copytree(self.root, root)
        return Scratch(root)

    async def test(self, paths: Sequence[str], *, timeout: float, keep_bytecode: bool = False) -> TestRun:  # noqa: ASYNC109
        """Run the tests of `paths` up to the first that fails. Raises CannotRun.

        A test that takes longer than `timeout` seconds hangs, unless it is marked with its own time; so do all of them
        at `RUN_TIMEOUTS` times that.
        """
        # -q is among the project's own options already. Named, so that paths below a package with its own configuration
        # are still relative to the root.
        command = ["-m", "pytest", "-c", "pyproject.toml", "-x", "--tb=no", "-rfE"]
        command += ["-p", "no:cacheprovider", "-p", "tests.mutants.unshrunk"]
        # One seed for all runs: whether a mutant is caught must not depend on chance.
        command += [f"--timeout={timeout:g}", "--hypothesis-seed=0", *paths]
        longest = timeout * RUN_TIMEOUTS
        code, output = await self._python(command, timeout=longest, keep_bytecode=keep_bytecode)
        if code is None:
            return TestRun(paths[0], f"no end within {longest:g} s", output, hung=True)
        if code == _PASSED:
            return TestRun("", "", output)
        first = _FAILURE.search(output)
        if code != _FAILED or first is None:
            raise CannotRun(f"pytest ended with {code}: {_last_lines(output)}")
        why = first[2] or ""
        return TestRun(first[1], why, output, hung=why.startswith("Failed: Timeout"))

    def put(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Write the files of `texts`, by path; return the previous texts."""
        before = {path: (self.root / path).read_text() for path in texts}
        for path, text in texts.items():
            (self.root / path).write_text(text)
            # Python detects outdated bytecode by seconds and size, which a quick edit can leave unchanged.
            Path(cache_from_source(self.root / path)).unlink(missing_ok=True)
        return before

    async def check_imports(self) -> None:
        """Raise CannotRun unless the copy's packages are those that are imported."""
        names = [Path(each).name for each in SHIPPED]
        code, output = await self._python(["-c", _IMPORTED, *names], timeout=60)
        expected = [str(self.root / each / "__init__.py") for each in SHIPPED]
        if code != 0 or output.split() != expected:
            raise CannotRun(f"Python imports {output.split()}, not {expected}")

    async def _python(
        self,
        arguments: Sequence[str],
        *,
        timeout: float,  # noqa: ASYNC109
        keep_bytecode: bool = False,
    ) -> tuple[int | None, str]:
        """Return exit code and output; None for a process that had to be ended."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        sources = os.pathsep.join(str(self.root / each.relative_to(ROOT)) for each in SOURCES)
        environment |= {"PYTHONPATH": sources, "COLUMNS": "250", "HYPOTHESIS_PROFILE": "whole"}
        if not keep_bytecode:
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            cwd=self.root,
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # A group of its own, so that what the tests start ends with them.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(timeout):
                output, _ = await process.communicate()
        except TimeoutError:
            return None, ""
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        return process.returncode, output.decode(errors="replace")


def _last_lines(output: str) -> str:
    return " | ".join(output.strip().splitlines()[-4:])
