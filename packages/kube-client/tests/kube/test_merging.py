"""A merge patch by which a map says what it should and nothing else."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube_client.merging import replacement


def merge_patch(value: Any, patch: Any) -> Any:
    """Apply a patch as RFC 7386 defines it."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(value) if isinstance(value, dict) else {}
    for key, part in patch.items():
        if part is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), part)
    return merged


_names = st.sampled_from("abc")
_maps = st.recursive(
    st.dictionaries(_names, st.integers(0, 2), max_size=3),
    lambda below: st.dictionaries(_names, below | st.integers(0, 2), max_size=3),
    max_leaves=6,
)


@given(known=_maps, wanted=_maps)
def test_a_server_that_carries_it_out_comes_to_have_what_is_wanted(known: Any, wanted: Any) -> None:
    there = {"map": known, "other": 1}
    assert merge_patch(there, {"map": replacement(known, wanted)}) == {"map": wanted, "other": 1}
    assert replacement(None, wanted) == wanted
