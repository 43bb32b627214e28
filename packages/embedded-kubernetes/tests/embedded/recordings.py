"""Answers that were recorded from real API servers. The files are not part of the repository; they are beside it."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from .places import REPOSITORY

#: Definitions of the custom resources that the recorded servers had.
CRDS = REPOSITORY / "config" / "crd"
#: The folder of all recordings.
FOLDER = REPOSITORY.parent / "shared" / "conformance"


def recorded(name: str, variable: str = "") -> list[str]:
    """Return the lines of the recording `name`, or of the file that the environment's `variable` names.

    Without the file, or outside of the repository, the test is skipped; with CI=true it fails. A file whose name ends
    in `.gz` is compressed. Raises FileNotFoundError if the environment names a file that does not exist.
    """
    given = os.environ.get(variable) if variable else None
    path = Path(given) if given else FOLDER / name
    if given is None:
        need(path)
    need(CRDS / "kustomization.yaml")
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def need(path: Path) -> None:
    """Skip the test if the file does not exist; with CI=true fail it."""
    if path.is_file():
        return
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"there is no file {path}; with CI=true no test is skipped for that", pytrace=False)
    pytest.skip(f"there is no file {path}")
