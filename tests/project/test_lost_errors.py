"""An unreported error fails the run, also if its source outlived its file."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_spreading import pytest_in

LEAVES = """
import logging

class Left:
    def __del__(self):
        logging.getLogger("asyncio").error("left behind")

kept = []

def test_it():
    left = Left()
    left.itself = left
    kept.append(left)
"""


@pytest.mark.parametrize("where", ["test_one", pytest.param("test_two", marks=pytest.mark.wide)])
def test_what_is_left_in_a_circle_is_told_of_at_the_end(tmp_path: Path, where: str) -> None:
    """The error is released by the file itself, or by a later one."""
    (tmp_path / "conftest.py").write_text("from tests.plugin import *\n")
    drops = "def test_that_drops_it():\n    import test_one\n    test_one.kept.clear()\n"
    files = {"test_one": LEAVES, "test_two": "def test_nothing(): pass\n"}
    files[where] += drops
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    done = pytest_in(tmp_path, "--rootdir", str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "an event loop had no caller to report to:\nleft behind" in done.stdout
