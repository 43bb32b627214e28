"""The formats of names in Kubernetes, and what is said of a text that does not match: those of `util/validation`.

Each function returns the problem of a text, or empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
#: Most bytes of the part of a qualified name after its prefix.
_MOST: Final = 63


def _matching(pattern: str, what: str, *examples: str) -> Callable[[str], str]:
    match = re.compile(pattern).fullmatch
    shown = ",  or ".join(f"'{example}'" for example in examples)
    problem = f"{what} (e.g. {shown}, regex used for validation is '{pattern}')"
    return lambda text: "" if match(text) else problem


label = _matching(
    _LABEL,
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character",
    *("my-name", "123-abc"),
)
subdomain = _matching(
    rf"{_LABEL}(\.{_LABEL})*",
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character",
    "example.com",
)
environment = _matching(
    r"[-._a-zA-Z][-._a-zA-Z0-9]*",
    "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not "
    "start with a digit",
    *("my.env-name", "MY_ENV.NAME", "MyEnvName1"),
)
_qualified = _matching(
    _QUALIFIED,
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character",
    *("MyName", "my.name", "123-abc"),
)


def qualified(text: str) -> str:
    """As that of a label, which says by which job a pod is."""
    long = f"name part must be no more than {_MOST} bytes" if len(text.encode()) > _MOST else ""
    return " ".join(each for each in (long, _qualified(text)) if each)
