"""Values of expressions, and the errors of those that cannot be evaluated."""

from __future__ import annotations

import pytest

from embedded.support import cases
from embedded_kubernetes.cel.names import Names
from embedded_kubernetes.cel.program import CelError, checked, program

_OBJECT = {"l": [3, 1, 2], "m": {"a": 1, "b": 2}, "s": "abcabc", "a": "text", "zero": 0, "none": None}
_VALUES = {"object": _OBJECT, "oldObject": None}


@cases(r"""
    expression
    "'a1b22'.find('[0-9]+') == '1'"
    "'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1b22'.findAll('[0-9]+', 1) == ['1']"
    "'abca'.indexOf('a', 1) == 3 && 'abca'.lastIndexOf('a') == 3"
    isIP('::1') && !isIP('1.2.3') && !isIP('::ffff:1.2.3.4')
    ip('1.2.3.4').family() == 4 && ip('2001:db8::1').family() == 6
    ip.isCanonical('::1') && !ip.isCanonical('0::1')
    ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && ip('fe80::1').isLinkLocalUnicast()
    ip('10.0.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()
    ip('224.0.0.1').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()
    isCIDR('10.0.0.0/8') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0')
    cidr('10.0.0.0/8').containsIP('10.1.1.1') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))
    cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))
    cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.1.2.3/8').prefixLength() == 8
    cidr('10.1.2.3/8').ip() == ip('10.1.2.3')
    isURL('https://a') && isURL('/a') && !isURL('a') && !isURL('https://a:b/')
    url('https://u@a.b:80/c%20d?e=f&e=g').getHost() == 'a.b:80'
    url('https://[::1]:80/').getHostname() == '::1' && url('https://a:80/').getPort() == '80'
    url('https://a/c%20d').getEscapedPath() == '/c%20d' && url('https://a').getScheme() == 'https'
    url('https://a/?e=f&e=g').getQuery()['e'] == ['f', 'g']
    '[1, 2].all(i, v, v > i) && ![1, 0].all(i, v, v > i)'
    object.l.exists(i, v, i == 1 && v == 1) && object . m . exists ( k , v , k == 'b' && v == 2 )
    object.l.existsOne(x, x == 2) && ![1, 1].existsOne(x, x == 1)
    object.m.existsOne(k, v, v == 2) && !object.m.exists_one(k, v, v > 0)
    '[[1, 2], [3]].all(i, l, l.all(j, v, v == i * 2 + j + 1))'
    "{'a': [1]}.all(k, vs, vs.all(v, v == 1))"
    '[true].exists(i, v, v || object.nosuch) && ![false].all(i, v, v && object.nosuch)'
    '[4, 5].transformList(i, v, i + v) == [4, 6]'
    '[4, 5].transformList(i, v, i > 0, i + v) == [6]'
    "object.m.transformMap(k, v, v + 1) == {'a': 2, 'b': 3}"
    "object.m.transformMap(k, v, k == 'b', v + 1) == {'b': 3}"
    '[7].transformMap(i, v, v) == {0: 7}'
    "object.m.transformMapEntry(k, v, {string(v): k}) == {'1': 'a', '2': 'b'}"
    "object.m.transformMapEntry(k, v, v > 1, {string(v): k}) == {'2': 'b'}"
    object.l.sortBy(x, -x) == [3, 2, 1] && object.l.sort() == [1, 2, 3]
    "['b', 'a'].sort() == ['a', 'b'] && [].sort() == []"
    object.l.indexOf(1) == 1 && [1, 1].lastIndexOf(1) == 1 && [1].indexOf(2) == -1
    '[dyn(true)].indexOf(dyn(1)) == -1 && [[1]].indexOf([1]) == 0'
    object.s.indexOf('c') == 2 && object.s.indexOf('a', 1) == 3 && object.s.indexOf('x') == -1
    object.s.lastIndexOf('c') == 5 && object.s.lastIndexOf('c', 4) == 2 && 'a'.lastIndexOf('') == 1
    '!has(object.none.x) && !has(object.s.x) && ! has ( object . none . x ) && has(object.m.a)'
    object.none.?x.orValue(1) == 1 && object . none . ? x.?y.orValue(1) == 1 && object.s.?x.orValue(1) == 1
    object.?m.?a.orValue(0) == 1 && object.m.?a.hasValue() && !object.?nosuch.?x.hasValue()
    '[object].all(o, !has(o.none.x) && o.none.?x.orValue(1) == 1 && o.l.all(i, v, !has(o.none.x)))'
    "'has(a.b)' == 'has' + '(a.b)' && 'a.?b' == 'a' + '.?b'"
    1 < 2.5 && 2.5 > size(object.l) - 1 && object.l.size() >= 3u && 3u <= object.l.size()
    '[1, 2].all(i, x, size([x]) < 1.5e0) && -1 < 1u'
    "'abc'.charAt(1) == 'b' && 'abc'.charAt(3) == ''"
    "'abc'.substring(1) == 'bc' && 'abc'.substring(1, 2) == 'b' && 'abc'.substring(3) == ''"
    '[1, 2, 3].slice(1, 3) == [2, 3] && [1, 2].reverse() == [2, 1]'
    '[[1], [2]].flatten() == [1, 2] && [[[1]], [[2]]].flatten(2) == [1, 2]'
    '[1, 1, 2].distinct() == [1, 2] && lists.range(3) == [0, 1, 2]'
    '[1, 2].sum() == 3 && [1, 2].max() == 2 && [1, 2].min() == 1 && [1, 2].isSorted()'
    '[1, 2].first().value() == 1 && [1, 2].last().value() == 2 && ![].first().hasValue()'
    "!format.dns1123Label().validate('my-name').hasValue()"
    format.dns1123Label().validate('My').value()[0].startsWith('a lowercase RFC 1123 label')
    format.dns1123LabelPrefix().validate('my-').orValue([]).size() == 0
    format.named('qualifiedName').value().validate('a/b/c').hasValue()
    "!format.named('nosuch').hasValue() && format.named('uri').hasValue()"
    "format.uri().validate('x').value() == ['parse \"x\": invalid URI for request']"
    format.uuid().validate('x').value() == ['does not match the UUID format']
    "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()"
    format.byte().validate('!').value() == ['invalid base64'] && !format.byte().validate('YQ==').hasValue()
    format.date().validate('2021-02-30').value() == ['invalid date']
    format.datetime().validate('2021-01-01').value() == ['invalid datetime']
    "!format.datetime().validate('2021-01-01T00:00:00Z').hasValue()"
    format.labelValue().validate('-').hasValue() && !format.labelValue().validate('').hasValue()
    """)
def test_it_holds(expression: str) -> None:
    assert checked(expression, Names()) == "bool"
    assert program(expression).evaluate(_VALUES) is True


@cases("""
    expression | said
    ip('x').family() == 4 | 'IP Address "x" parse error during conversion from string: ParseAddr("x"): unable
        to parse IP'
    url('x').getHost() == '' | 'URL parse error during conversion from string: parse "x": invalid URI
        for request'
    quantity('x') == quantity('1') | quantities must match the regular expression
        '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
    quantity('1MM') == quantity('1') | unable to parse quantity's suffix
    semver('1.2') == semver('1.2.3') | No Major.Minor.Patch elements found
    semver('1.x.3').major() == 1 | Invalid character(s) found in minor number "x"
    semver('01.2.3').major() == 1 | Major number must not contain leading zeroes "01"
    int('x') == 1 | type conversion error from 'string' to 'int'
    duration('x') == duration('1s') | type conversion error from 'string' to 'google.protobuf.Duration'
    dyn(1)[0] == 1 | no such overload
    uint(-1) == 1u | unsigned integer overflow
    1 % 0 == 1 | modulus by zero
    "{'a': 1, 'b': 2}.transformMapEntry(k, v, {'x': v})" | 'insert failed: key x already exists'
    '[1, 2].slice(1, 3)' | cannot slice(1, 3), list is length 2
    '[1, 2].slice(2, 1)' | cannot slice(2, 1), start index must be less than or equal to end index
    '[1, 2].slice(-1, 1)' | cannot slice(-1, 1), negative indexes not supported
    '[[1]].flatten(-1)' | level must be non-negative
    lists.range(-1) | 'lists.range: size must be non-negative, got -1'
    "[dyn(1), dyn('a')].sort()" | list elements must have the same type
    "[dyn(1), dyn('a')].min() == 1" | no such overload
    "[dyn(1), dyn('a')].isSorted()" | no such overload
    "'abc'.substring(object.s) == ''" | no such overload
    '[[1]].sortBy(x, x)' | list elements must be comparable
    object.l.filter(x, x > 5).min() | min called on empty list
    object.l.filter(x, x > 5).max() | max called on empty list
    "'abc'.indexOf('a', 9)" | 'index out of range: 9'
    "'abc'.charAt(4)" | 'index out of range: 4'
    "'abc'.substring(4)" | 'index out of range: 4'
    "'abc'.substring(2, 1)" | 'invalid substring range. start: 2, end: 1'
    object.l.all(i, v, v.nosuch == 1) | no such overload
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
    with pytest.raises(CelError) as error:
        program(expression).evaluate(_VALUES)
    assert str(error.value) == said


def test_loops_are_bounded() -> None:
    expression = "true"
    for depth in range(6):
        expression = f"[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(x{depth}, {expression})"
    with pytest.raises(CelError, match="operation cancelled: actual cost limit exceeded"):
        program(expression).evaluate({})
