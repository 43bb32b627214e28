"""A quantity has one text."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedded.support import cases
from embedded_kubernetes.quantities import FORMAT_WRONG, QuantityFormatError, canonical_quantity

_FACTORS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(1000),
    "M": Fraction(10**6), "G": Fraction(10**9), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30),
}  # fmt: skip
#: Larger suffixes, with which results are also written.
_LARGER = {"T": Fraction(10**12), "P": Fraction(10**15), "Ti": Fraction(2**40), "Pi": Fraction(2**50)}


@cases("""
    text | canonical
    1000m | '1'
    '0.5' | 500m
    1024Mi | 1Gi
    1.5Gi | 1536Mi
    1.1Ki | 1126400m
    0.5Ki | '512'
    '100000' | 100k
    '1500' | '1500'
    1e3 | 1e3
    1E3 | 1e3
    0.1n | 1n
    '-0' | '0'
    '+5' | '5'
    '.5' | 500m
    '5.' | '5'
    '12345678901234567890' | '9223372036854775807'
    '-1.5' | -1500m
    0Gi | '0'
    """)
def test_a_quantity_is_written_in_canonical_form(text: str, canonical: str) -> None:
    assert canonical_quantity(text) == canonical


@pytest.mark.parametrize("text", ["ten", "", "1x", "1.2.3", "-", "1 ", "Ki"])
def test_a_text_of_another_form_is_refused_in_the_words_of_the_server(text: str) -> None:
    with pytest.raises(QuantityFormatError) as refused:
        canonical_quantity(text)
    assert str(refused.value) == FORMAT_WRONG


@given(digits=st.decimals(min_value=0, max_value=10**6, places=3), suffix=st.sampled_from(sorted(_FACTORS)))
def test_canonical_text_keeps_the_amount_and_is_its_own_canonical_form(digits: object, suffix: str) -> None:
    canonical = canonical_quantity(f"{digits}{suffix}")
    assert canonical_quantity(canonical) == canonical
    exact = Fraction(str(digits)) * _FACTORS[suffix]
    nano = Fraction(1, 10**9)
    body = canonical.rstrip("EPTGMKkimun")
    shown = Fraction(body) * (_FACTORS | _LARGER)[canonical[len(body) :]]
    assert exact <= shown < exact + nano
