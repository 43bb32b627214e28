"""The page about faults of others names every file of regression tests, and none that is not there."""

from __future__ import annotations

import re

from tests.support.places import TESTS

FOLDER = TESTS / "regressions"


def test_the_page_names_every_file_and_none_that_is_not_there() -> None:
    named = set(re.findall(r"`((?:\.\./)*[\w/-]*test_\w+\.py)`", (FOLDER / "README.md").read_text()))
    assert {path.name for path in FOLDER.glob("test_*.py")} <= named
    assert [name for name in named if not (FOLDER / name).is_file()] == []
