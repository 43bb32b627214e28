"""Licenses of installed distributions as SPDX expressions, and the allowed ones."""

from __future__ import annotations

import re
from importlib.metadata import Distribution

#: #: Licenses that may be shipped and used with a project under Apache-2.0. MPL-2.0 covers only changes of its own
#: files.
ALLOWED = frozenset(
    {
        *("Apache-2.0", "MIT", "MIT-0", "MIT-CMU", "BSD-2-Clause", "BSD-3-Clause", "0BSD", "ISC", "Zlib"),
        *("CC0-1.0", "PSF-2.0", "MPL-2.0", "Unlicense"),
        "LicenseRef-BSD",  # # a classifier does not state the number of clauses
    }
)
#: #: Texts of the License field from before SPDX expressions. Only the beginning is compared, as some contain it all.
_WRITTEN = {
    "apache 2.0": "Apache-2.0",
    "apache license": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "mit license": "MIT",
    "bsd 2-clause": "BSD-2-Clause",
    "bsd 3-clause": "BSD-3-Clause",
    "3-clause bsd": "BSD-3-Clause",
    "psf-2.0": "PSF-2.0",
    "mpl-2.0": "MPL-2.0",
}
_CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "BSD License": "LicenseRef-BSD",
}


def expression(distribution: Distribution) -> str:
    """Return the license of the metadata; an unknown text is returned as it is written, and not allowed."""
    metadata = distribution.metadata
    if said := metadata.get("License-Expression"):
        return str(said)
    written = (metadata.get("License") or "").strip()
    if written == "MIT":
        return "MIT"
    for start, spdx in _WRITTEN.items():
        if written.lower().startswith(start):
            return spdx
    classifiers = [
        str(each).rpartition(" :: ")[2]
        for each in metadata.get_all("Classifier", [])
        if str(each).startswith("License :: OSI Approved :: ")
    ]
    if classifiers:
        # # Several classifiers do not state whether one may choose, so all must be allowed.
        return " AND ".join(_CLASSIFIERS.get(each, each) for each in classifiers)
    return written.split("\n")[0] or "none"


def is_allowed(expression: str) -> bool:
    """Return whether a license is allowed: with AND all parts, with OR one of them; other texts never are."""
    if not re.fullmatch(r"[\w.+-]+|[\w.+() -]+ (?:AND|OR) [\w.+() -]+", expression):
        return False
    words = re.findall(r"[()]|[^\s()]+", expression)
    try:
        answer = _either(words)
    except IndexError:
        return False
    return answer and not words


def _either(words: list[str]) -> bool:
    answer = _both(words)
    while words and words[0] == "OR":
        words.pop(0)
        # # The second operand must be parsed in any case, or its words would be left.
        answer = _both(words) or answer
    return answer


def _both(words: list[str]) -> bool:
    answer = _one(words)
    while words and words[0] == "AND":
        words.pop(0)
        answer = _one(words) and answer
    return answer


def _one(words: list[str]) -> bool:
    word = words.pop(0)
    if word != "(":
        return word in ALLOWED
    answer = _either(words)
    return words.pop(0) == ")" and answer
