"""A test that needs something from outside is skipped with a reason if it is missing; with CI=true it fails."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support import needed
from tests.support.places import TESTS


def test_what_is_missing_skips_and_says_so_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="there is no moon"):
        needed.need(None, "there is no moon")
    monkeypatch.setenv("CI", "true")
    needed.need("a moon", "there is no moon")
    with pytest.raises(pytest.fail.Exception, match="there is no moon"):
        needed.need(None, "there is no moon")


def test_nobody_else_skips_a_test() -> None:
    """A skip elsewhere would be reported nowhere in CI.

    End-to-end tests may skip if the cluster under test lacks something that the embedded one has. Worlds that are known
    to break a promise are named in a list (tests/sim/conftest.py).
    """
    others = (TESTS / "support" / "needed.py", TESTS / "sim" / "conftest.py", Path(__file__))
    found = [
        f"{path.relative_to(TESTS)}:{node.lineno}"
        for path in sorted(TESTS.rglob("*.py"))
        if path not in others and TESTS / "e2e" not in path.parents
        if re.search(r"\.(skip|skipif|importorskip|xfail)\b", text := path.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and node.attr in ("skip", "skipif", "importorskip", "xfail")
    ]
    assert found == []
