"""Folders of the distribution, and of the repository around it."""

from __future__ import annotations

from pathlib import Path

#: The folder of README.md, docs and src.
PACKAGE = Path(__file__).resolve().parents[2]
#: The repository of the distribution. It may be missing: the tests run without it.
REPOSITORY = PACKAGE.parents[1]
README = PACKAGE / "README.md"
FAULTS = PACKAGE / "docs" / "faults.md"
