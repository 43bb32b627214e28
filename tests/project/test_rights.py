"""The rights that the documentation describes are those that the roles and policies in `config` grant."""

from __future__ import annotations

import pytest

from .rights import COMPONENTS, PAGES, claims, filled, granted, policies, rights, texts


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_tables_of_rights_are_those_of_the_roles(page) -> None:  # type: ignore[no-untyped-def]
    text = page.read_text()
    assert "<!-- rights: " in text
    assert text == filled(text), "run: make rights"


def test_each_component_has_a_table() -> None:
    text = PAGES[0].read_text()
    assert [each for each in COMPONENTS if f"<!-- rights: {each} -->" not in text] == []


def test_what_a_component_cannot_do_no_role_allows() -> None:
    found = [(path, each) for path, text in texts() for each in claims(text)]
    assert {each.component for _, each in found} >= {"scheduler", "webhook"}
    for path, claim in found:
        assert claim.denied is not None, f"{path}: not a list of `VERB KIND`: {claim.sentence}"
        for verb, kind in claim.denied:
            assert granted(claim.component, verb, kind) == [], f"{path}: {claim.sentence}"


@pytest.mark.parametrize(
    ("sentence", "holds"),
    [
        ("The scheduler cannot create pods.", True),
        ("The scheduler cannot read Secrets, create pods, or write nodes.", True),
        ("The scheduler can not change or create one.", None),
        ("The scheduler cannot change pods.", False),
        ("The scheduler cannot delete pods.", False),
        ("The scheduler cannot evict pods.", True),
        ("The controllers cannot read ConfigMaps.", False),
        ("- **Webhook.** It reads queues.\n  It cannot read\n  pods.", True),
        ("- **Webhook.** It cannot read queues.", False),
        ("The scheduler cannot start.", None),
    ],
)
def test_a_sentence_is_read_against_the_roles(sentence: str, holds: bool | None) -> None:
    (claim,) = claims(sentence)
    if claim.denied is None:
        assert holds is None
    else:
        assert holds == (not any(granted(claim.component, *each) for each in claim.denied))


def test_no_role_has_a_wildcard_and_every_right_to_change_pods_has_a_policy() -> None:
    for component in COMPONENTS:
        found = rights(component)
        assert [each for each in found if "*" in (each.group, each.resource, each.verb)] == []
        changes = any(each.resource == "pods" and each.verb in ("patch", "delete") for each in found)
        assert bool(policies(component)) == changes
