"""The formats of names in Kubernetes, with the messages of `util/validation`.

Each function returns the problems of a text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

Problems = tuple[str, ...]
Rule = Callable[[str], Problems]

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LETTERS: Final = "alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
#: Maximum bytes of a label, its value, and the part of a qualified name after its prefix; and of a subdomain.
_SHORT: Final = 63
_LONG: Final = 253
#: Maximum characters of a port's name.
_PORT: Final = 15


def _longer(text: str, most: int) -> Problems:
    return (f"must be no more than {most} bytes",) if len(text.encode()) > most else ()


def _matching(pattern: str, what: str, *examples: str, most: int = 0) -> Rule:
    match = re.compile(pattern).fullmatch
    shown = ",  or ".join(f"'{example}'" for example in examples)
    problem = f"{what} (e.g. {shown}, regex used for validation is '{pattern}')"

    def problems(text: str) -> Problems:
        return (*(_longer(text, most) if most else ()), *(() if match(text) else (problem,)))

    return problems


label = _matching(
    _LABEL,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character",
    *("my-name", "123-abc"),
    most=_SHORT,
)
subdomain = _matching(
    rf"{_LABEL}(\.{_LABEL})*",
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character",
    "example.com",
    most=_LONG,
)
_DOMAIN: Final = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
#: A domain for name lookup.
search_path = _matching(
    rf"{_DOMAIN}(\.{_DOMAIN})*",
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    "start and end with an alphanumeric character",
    "example.com",
    most=_LONG,
)
environment = _matching(
    r"[-._a-zA-Z][-._a-zA-Z0-9]*",
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not "
    "start with a digit",
    *("my.env-name", "MY_ENV.NAME", "MyEnvName1"),
)
label_value = _matching(
    f"({_NAME})?",
    f"a valid label must be an empty string or consist of {_LETTERS}",
    *("MyValue", "my_value", "12345"),
    most=_SHORT,
)
_key = _matching(
    "[-._a-zA-Z0-9]+",
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
    *("key.name", "KEY_NAME", "key-name"),
)
_name_part = _matching(_NAME, f"name part must consist of {_LETTERS}", *("MyName", "my.name", "123-abc"))


def qualified(text: str) -> Problems:
    """Check a name with or without a prefix: the key of a label, a gate. A pod's name becomes a label of its job."""
    prefix, slash, name = text.rpartition("/")
    if "/" in prefix:
        return (
            f"a qualified name must consist of {_LETTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
            f"validation is '{_NAME}') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    found: list[str] = []
    if slash:
        problems = subdomain(prefix) if prefix else ("must be non-empty",)
        found += [f"prefix part {each}" for each in problems]
    if not name:
        found.append("name part must be non-empty")
    found += [f"name part {each}" for each in _longer(name, _SHORT)]
    return (*found, *_name_part(name))


def config_key(text: str) -> Problems:
    """Check a key of a ConfigMap or a Secret."""
    if problems := _longer(text, _LONG) or _key(text):
        return problems
    if text in (".", ".."):
        return (f"must not be '{text}'",)
    return ("must not start with '..'",) if text.startswith("..") else ()


def port(text: str) -> Problems:
    """Check the name of a port."""
    found = list(_longer(text, _PORT))
    if not re.fullmatch(r"[-a-z0-9]+", text):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search(r"[a-z]", text):
        found.append("must contain at least one letter (a-z)")
    if "--" in text:
        found.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return tuple(found)


def address(text: str) -> Problems:
    try:
        ip_address(text)
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    return ()


def is_extended_resource(name: str) -> bool:
    """Return whether a resource is neither Kubernetes' own nor a quota's name."""
    return "/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")
