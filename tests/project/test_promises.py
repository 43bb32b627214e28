"""Each promise of the documentation is named by a test, and docs/promises.md lists them."""

from __future__ import annotations

from .promises import PAGE, marked, page, promises


def test_every_promise_has_a_test() -> None:
    assert len(promises()) > 70
    assert sorted(set(promises()) - set(marked())) == []


def test_every_marker_names_a_promise_that_the_documentation_makes() -> None:
    assert sorted(set(marked()) - set(promises())) == []


def test_the_page_is_as_it_would_be_generated() -> None:
    assert PAGE.read_text() == page(), "run: make promises"
