"""Warning headers of a response, with kube-apiserver's limits.

Follows the recorder of k8s.io/apiserver/pkg/endpoints/filters/warning.go: duplicates are dropped, and texts
are truncated if their total is too long.
"""

from __future__ import annotations

import unicodedata

Header = tuple[str, str]

#: Limits in characters: of all texts together, and of each text if that limit is exceeded.
_TOGETHER, _EACH = 4096, 256


class Warnings:
    """Collects warnings in order of first occurrence."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        """Add a warning, unless it has control characters."""
        if text and not any(unicodedata.category(letter) == "Cc" for letter in text):
            self._texts.setdefault(text)

    def headers(self) -> tuple[Header, ...]:
        texts = list(self._texts)
        if sum(map(len, texts)) > _TOGETHER:
            cut: list[str] = []
            for text in texts:
                if sum(map(len, cut)) >= _TOGETHER:
                    break
                cut.append(text[:_EACH])
            texts = cut
        return tuple(("Warning", warning(text)) for text in texts)


def warning(text: str) -> str:
    """Return the value of a Warning header."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'
