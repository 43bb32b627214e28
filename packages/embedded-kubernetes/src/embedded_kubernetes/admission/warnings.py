"""Warning headers of one answer, within a real server's bounds.

Follows the recorder of k8s.io/apiserver/pkg/endpoints/filters/warning.go: each text once; when all are too long
together, each is cut.
"""

from __future__ import annotations

import unicodedata

Header = tuple[str, str]

#: Characters: of all texts together, and of each where that is too much.
_TOGETHER, _EACH = 4096, 256


class Warnings:
    """What is to be told, in the order in which it was said first."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}

    def add(self, text: str) -> None:
        """One with control characters is not told."""
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
    """The value of a Warning header."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'
