"""Worlds that are known to break a promise are told apart: `open.txt` names them until what they show is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

OPEN = frozenset((Path(__file__).parent / "open.txt").read_text().splitlines())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.removeprefix("tests/sim/") in OPEN:
            item.add_marker(pytest.mark.xfail(reason="open: see tests/sim/open.txt", strict=False))
