"""Formats of names, label keys and label values.

The rules are those of apimachinery's `util/validation`: RFC 1123 subdomains and labels, RFC 1035 labels, qualified
names, label values and port names. Each function returns the problems of a text in kube-apiserver's wording; an empty
tuple if there are none.
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Callable
from functools import lru_cache

Problems = tuple[str, ...]

_ENV_NAME = re.compile(r"[ -<>-~]+")
_PORT_NAME = re.compile(r"[-a-z0-9]+")


def _longer(limit: int) -> str:
    return f"must be no more than {limit} bytes"


def _matching(pattern: str, limit: int | None, what: str, *examples: str) -> Callable[[str], Problems]:
    """Return the rule that a text matches a pattern and has at most `limit` characters.

    `what` describes the pattern.
    """
    match = re.compile(pattern).fullmatch
    shown = ",  or ".join(f"'{example}'" for example in examples)
    problem = f"{what} (e.g. {shown}, regex used for validation is '{pattern}')"

    most = limit or sys.maxsize

    def problems_of(text: str) -> Problems:
        if len(text) <= most:
            return () if match(text) else (problem,)
        return (_longer(most),) if match(text) else (_longer(most), problem)

    return problems_of


_ALPHANUMERIC = "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
#: RFC 1123 label: the name of a namespace or a container.
label = _matching(
    _LABEL,
    63,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
    "end with an alphanumeric character",
    *("my-name", "123-abc"),
)
#: RFC 1123 subdomain: the name of a pod, a node and most other objects.
subdomain = _matching(
    rf"{_LABEL}(\.{_LABEL})*",
    253,
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character",
    "example.com",
)
#: RFC 1035 label: the name of a service.
label_1035 = _matching(
    "[a-z]([-a-z0-9]*[a-z0-9])?",
    63,
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character",
    *("my-name", "abc-123"),
)
label_value = _matching(
    "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?",
    63,
    f"a valid label must be an empty string or consist of {_ALPHANUMERIC}",
    *("MyValue", "my_value", "12345"),
)
_NAME_PART = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_name_part = _matching(
    _NAME_PART, None, f"name part must consist of {_ALPHANUMERIC}", *("MyName", "my.name", "123-abc")
)
_key_letters = _matching(
    "[-._a-zA-Z0-9]+",
    None,
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    *("key.name", "KEY_NAME", "key-name"),
)
#: The name of a device attribute.
c_identifier = _matching(
    "[A-Za-z_][A-Za-z0-9_]*",
    None,
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric "
    "characters or '_'",
    *("my_name", "MY_NAME", "MyName"),
)


def path_segment(text: str) -> Problems:
    """Check a name that occurs in a URL path, such as that of a role."""
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{char}'" for char in "/%" if char in text)


@lru_cache(maxsize=8192)
def qualified(text: str) -> Problems:
    """Check a qualified name, `name` or `prefix/name`: label and annotation keys, gates, finalizers, resources."""
    prefix, slash, name = text.rpartition("/")
    problems: list[str] = []
    if "/" in prefix:
        return (
            f"a qualified name must consist of {_ALPHANUMERIC} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
            f"regex used for validation is '{_NAME_PART}') with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')",
        )
    if slash:
        if not prefix:
            problems.append("prefix part must be non-empty")
        problems += [f"prefix part {problem}" for problem in (subdomain(prefix) if prefix else ())]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 bytes")
    return (*problems, *_name_part(name))


def config_key(text: str) -> Problems:
    """Check a key of a ConfigMap or Secret."""
    if len(text) > 253:
        return (_longer(253),)
    if problems := _key_letters(text):
        return problems
    if text in (".", ".."):
        return (f"must not be '{text}'",)
    return ("must not start with '..'",) if text.startswith("..") else ()


def port_name(text: str) -> Problems:
    """Check an IANA service name."""
    problems: list[str] = []
    if len(text) > 15:
        problems.append("must be no more than 15 bytes")
    if not _PORT_NAME.fullmatch(text):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any("a" <= char <= "z" for char in text):
        problems.append("must contain at least one letter (a-z)")
    if "--" in text:
        problems.append("must not contain consecutive hyphens")
    if text and (text[0] == "-" or text[-1] == "-"):
        problems.append("must not begin or end with a hyphen")
    return tuple(problems)


def env_name(text: str) -> Problems:
    """Check that the text is printable ASCII without '=' (KEP-4369)."""
    if _ENV_NAME.fullmatch(text):
        return ()
    return ("a valid environment variable name must consist only of printable ASCII characters other than '='",)


def _parsed(parse: Callable[[str], object], problem: str) -> Callable[[str], Problems]:
    """Return the rule that `parse` accepts a text."""

    def problems_of(text: str) -> Problems:
        try:
            parse(text)
        except ValueError:
            return (problem,)
        return ()

    return problems_of


def _network(text: str) -> object:
    if "/" not in text:
        raise ValueError("not a prefix")
    return ipaddress.ip_network(text, strict=False)


ip = _parsed(ipaddress.ip_address, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")
cidr = _parsed(_network, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
