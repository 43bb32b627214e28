"""Functions of expressions on texts, addresses and URLs."""

from __future__ import annotations

import pytest

from embedded_kubernetes.cel.program import CelError, program
from tests.embedded.support import cases


@cases("""
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
    """)
def test_it_holds(expression: str) -> None:
    assert program(expression).evaluate({}) is True


@cases("""
    expression | said
    ip('x').family() == 4 | 'IP Address "x" parse error during conversion from string: ParseAddr("x")'
    url('x').getHost() == '' | 'URL parse error during conversion from string: parse "x": invalid URI'
    quantity('x') == quantity('1') | quantities must match the regular expression
    quantity('1MM') == quantity('1') | unable to parse quantity's suffix
    semver('1.2') == semver('1.2.3') | No Major.Minor.Patch elements found
    semver('1.x.3').major() == 1 | Invalid character(s) found in minor number "x"
    semver('01.2.3').major() == 1 | Major number must not contain leading zeroes "01"
    int('x') == 1 | type conversion error from 'string' to 'int'
    duration('x') == duration('1s') | type conversion error from 'string' to 'google.protobuf.Duration'
    dyn(1)[0] == 1 | no such overload
    uint(-1) == 1u | unsigned integer overflow
    1 % 0 == 1 | modulus by zero
    """)
def test_what_is_wrong_is_told_as_a_real_server_does(expression: str, said: str) -> None:
    with pytest.raises(CelError) as error:
        program(expression).evaluate({})
    assert str(error.value).startswith(said)


def test_loops_are_bounded() -> None:
    expression = "true"
    for depth in range(6):
        expression = f"[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].all(x{depth}, {expression})"
    with pytest.raises(CelError, match="operation cancelled: actual cost limit exceeded"):
        program(expression).evaluate({})
