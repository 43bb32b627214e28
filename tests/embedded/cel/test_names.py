"""What expressions may name, and where they name something else."""

from __future__ import annotations

import pytest

from embedded_kubernetes.cel.names import Names, inlined, mentions, missing_field, problems
from embedded_kubernetes.cel.program import CelError, checked, program
from tests.embedded.support import cases


@cases("""
    expression | said
    has(object) | ['1:5: invalid argument to has() macro']
    '[1].all(1, true)' | ['1:9: argument must be a simple name']
    '[1].map(1, true)' | ['1:9: argument is not an identifier']
    object.`a-b` == object.`c` | ["1:8: unsupported syntax: '`'", "1:24: unsupported syntax: '`'"]
    1.x | ["1:2: type 'int' does not support field selection"]
    1.all(x, x) | ["1:1: expression of type 'int' cannot be range of a comprehension (must be list, map, or
        dynamic)"]
    object.x[ | ["1:10: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', '?',
        'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"]
    nosuch().x | ["1:7: undeclared reference to 'nosuch' (in container '')"]
    'nosuch.x + {1: 1}' | ["1:1: undeclared reference to 'nosuch' (in container '')"]
    """)
def test_errors_of_the_parser_and_the_checker_are_in_cel_gos_words(expression: str, said: list[str]) -> None:
    with pytest.raises(CelError) as error:
        checked(expression, Names())
    lines = str(error.value).split("\n")
    assert [line for line in lines if line.startswith("ERROR")] == [f"ERROR: <input>:{each}" for each in said]


def test_a_message_may_not_ask_who_may_do_what() -> None:
    assert "undeclared reference to 'authorizer'" in problems("authorizer.path('/')", Names(authorizer=False))


def test_the_type_of_a_variable_is_that_of_its_expression() -> None:
    known = Names(variables={"a": "bool"})
    assert checked("variables.a", known) == "bool"
    assert checked("variables . a ? 'x' : 'y'", known) == "string"
    assert inlined("[variables.a, variables.b]", {"a": "1"}) == "[(1), variables.b]"
    with pytest.raises(CelError, match="undefined field 'b'"):
        checked("variables.b", known)


def test_mentions_tell_variables_from_fields() -> None:
    found = [mention.path for mention in mentions("a.b + c[d].e - 'f' // g")]
    assert found == [("a", "b"), ("c",), ("d",)]


@pytest.mark.parametrize(
    ("expression", "name"),
    [("object.a.b.c", "b"), ("oldObject.metadata.x", "metadata"), ("object.a.nosuch", "nosuch"), ("1", "")],
)
def test_a_field_of_what_has_none_is_found(expression: str, name: str) -> None:
    values = {"object": {"a": "text"}, "oldObject": None}
    assert missing_field(expression, values)[0] == name


@cases("""
    expression | said
    object.a.b == 1 | 'no such key: b'
    oldObject.x == 1 | 'no such key: x'
    object.nosuch == 1 | 'no such key: nosuch'
    object.l[3] == 1 | 'index out of bounds: 3'
    '[optional.of(1)]' | no such overload
    null.family() == 4 | no such overload
    has(object.l.x) | unsupported index type 'string' in list
    has(oldObject.x.y) | 'no such key: x'
    object.nosuch.?x.hasValue() | 'no such key: nosuch'
    optional.none() | no such overload
    object.l['x'] == 1 | unsupported index type 'string' in list
    object.l.x == 1 | unsupported index type 'string' in list
    object[0] == 1 | 'no such key: 0'
    object.a.matches(object.a + '(') | 'error parsing regexp: missing closing ): `text(`'
    object.a.matches(object.a + '**') | 'error parsing regexp: invalid nested repetition operator: `**`'
    1 / object.zero == 1 | division by zero
    object.a + 1 == 2 | no such overload
    """)
def test_errors_of_an_evaluation_are_in_cel_gos_words(expression: str, said: str) -> None:
    values = {"object": {"a": "text", "l": [1], "zero": 0}, "oldObject": None}
    with pytest.raises(CelError) as error:
        program(expression).evaluate(values)
    assert str(error.value) == said
