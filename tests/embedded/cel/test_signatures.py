"""What expressions are checked by is what they are evaluated by."""

from __future__ import annotations

import pytest

from agent_scheduler.objects.celtypes import FUNCTIONS
from embedded_kubernetes.cel import formats, library, lists
from embedded_kubernetes.cel.authorizer import METHODS
from embedded_kubernetes.cel.macros import OWN
from embedded_kubernetes.cel.names import Names
from embedded_kubernetes.cel.program import CelError, checked
from embedded_kubernetes.cel.signatures import signatures

from ..support import cases


def test_the_same_functions_are_known_with_as_many_parameters() -> None:
    evaluated = {
        (function.name, len(function.parameters), function.is_method)
        for function in (*FUNCTIONS, *library.FUNCTIONS, *lists.FUNCTIONS, *formats.FUNCTIONS)
    }
    evaluated |= {(method.name, method.parameters + 1, True) for method in METHODS}
    evaluated.add(("jsonpatch.escapeKey", 1, False))
    known = {(name, len(one.parameters), one.is_method) for name, found in signatures() for one in found}
    # These are written anew, in one way to be checked and in another to be evaluated.
    anew = {f"{OWN}{name}" for name in ("indexOf", "lastIndexOf", "charAt", "substring", "slice", "sortedBy")}
    anew |= {"distinct", "flatten", "slice"}
    assert {each for each in known if each[0] not in anew} == {
        each for each in evaluated if each[0] not in anew
    }


@cases("""
    expression | kind
    quantity('1').add(1) | kubernetes.Quantity
    semver('1.2.3') | kubernetes.Semver
    url('https://a').getQuery() | map(string, list(string))
    cidr('10.0.0.0/8').ip() | net.IP
    authorizer.group('').resource('pods').check('get') | kubernetes.authorization.Decision
    authorizer.requestResource | kubernetes.authorization.ResourceCheck
    format.date().validate('x') | optional_type(list(string))
    '[1].sum()' | int
    '[[1]].flatten()' | list(int)
    "['a'].slice(0, 1)" | list(string)
    "['a'].distinct().sortBy(x, x.size())" | list(string)
    object.x.flatten() | list(dyn)
    object.x.sum() | dyn
    """)
def test_types_are_those_of_a_real_server(expression: str, kind: str) -> None:
    assert checked(expression, Names()) == kind


@cases("""
    expression | said
    quantity('1').isLessThan('2') | "1:25: found no matching overload for 'isLessThan' applied to
        'kubernetes.Quantity.(string)'"
    authorizer.check('get') | "1:17: found no matching overload for 'check' applied to
        'kubernetes.authorization.Authorizer.(string)'"
    "'a'.startsWith(1)" | "1:15: found no matching overload for 'startsWith' applied to 'string.(int)'"
    "'a'.reverse()" | "1:12: found no matching overload for 'reverse' applied to 'string.()'"
    "'a'.substring('b')" | "1:14: found no matching overload for 'substring' applied to 'string.(string)'"
    "[1].slice('a', 1)" | "1:10: found no matching overload for 'slice' applied to '(string, int)'"
    "'a'.indexOf(1)" | "1:12: found no matching overload for 'indexOf' applied to 'string.(int)'"
    "['a'].sum()" | "1:10: found no matching overload for 'sum' applied to 'list(string).()'"
    sets.contains(1, 2) | "1:14: found no matching overload for 'sets.contains' applied to '(int, int)'"
    quantity('1').x | "1:14: unexpected failed resolution of 'kubernetes.Quantity'"
    ip('::1').x | "1:10: type 'net.IP' does not support field selection"
    math.greatest(1, 2) | "1:1: undeclared reference to 'math' (in container '')"
    cel.bind(x, 1, x) | "1:1: undeclared reference to 'cel' (in container '')"
    1 < 2.5 && [1, 'a'] == [] | "1:16: expected type 'int' but found 'string'"
    size('a') < 2.5 && 1 < 'a' | "1:22: found no matching overload for '_<_' applied to '(int, string)'"
    jsonpatch.escapeKey('a') | "1:1: undeclared reference to 'jsonpatch' (in container '')"
    'Object{a: 1}' | "1:7: undeclared reference to 'Object' (in container '')"
    """)
def test_what_does_not_fit_is_told_by_these_types(expression: str, said: str) -> None:
    with pytest.raises(CelError) as error:
        checked(expression, Names())
    assert str(error.value).split("\n")[0] == f"ERROR: <input>:{said}"
