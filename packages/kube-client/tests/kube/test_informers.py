"""Kinds that are watched together."""

from __future__ import annotations

from typing import Any

import pytest

from kube_client.informers import Kind, merged


def test_a_kind_that_two_ask_for_is_watched_once_and_told_to_both() -> None:
    told: list[str] = []

    def kind(name: str, who: str, **more: Any) -> Kind:
        return Kind(
            name,
            f"/{name}",
            lambda raw: raw,
            lambda each: told.append(f"{who} set {each}"),
            lambda each: told.append(f"{who} delete {each}"),
            **more,
        )

    both, alone = merged([kind("A", "one"), kind("B", "one"), kind("A", "two", vital=True)])
    assert (both.name, both.vital, alone.name) == ("A", True, "B")
    both.set("x")
    both.delete("y")
    assert told == ["one set x", "two set x", "one delete y", "two delete y"]
    with pytest.raises(ValueError, match="A is watched in two ways"):
        merged([kind("A", "one"), kind("A", "two", query={"fieldSelector": "x"})])
