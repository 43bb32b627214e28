"""Errors of texts that are not JSON."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from embedded.support import cases
from embedded_kubernetes.json_syntax import syntax_error

from ..examples import examples


@cases(r"""
    text | said
    '' | unexpected end of JSON input
    '{"a": ' | unexpected end of JSON input
    '{nope' | invalid character 'n' looking for beginning of object key string
    nope | invalid character 'o' in literal null (expecting 'u')
    hello | invalid character 'h' looking for beginning of value
    '{"a" 1}' | invalid character '1' after object key
    '{"a": 1 "b"}' | invalid character '"' after object key:value pair
    '[1 2]' | invalid character '2' after array element
    1 2 | invalid character '2' after top-level value
    "\"a\nb\"" | invalid character '\n' in string literal
    '"\x"' | invalid character 'x' in string escape code
    '"\u12g4"' | invalid character 'g' in \u hexadecimal character escape
    -a | invalid character 'a' in numeric literal
    1.a | invalid character 'a' after decimal point in numeric literal
    1e+a | invalid character 'a' in exponent of numeric literal
    '01' | invalid character '1' after top-level value
    "['a']" | invalid character '\'' looking for beginning of value
    """)
def test_the_first_wrong_character_is_told(text: str, said: str) -> None:
    assert syntax_error(text.encode()) == said


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(_JSON)
@examples(40)
def test_nothing_is_said_of_json(value: object) -> None:
    assert syntax_error(json.dumps(value).encode()) == ""


@given(st.text(alphabet='{}[]:,"\\u0123456789abcdef.eE+-truefalsn \n'))
def test_something_is_said_of_everything_else(text: str) -> None:
    try:
        json.loads(text)
        known = True
    except ValueError:
        known = False
    assert (syntax_error(text.encode()) == "") is known
