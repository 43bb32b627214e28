"""What happened, line by line, and its digest: two runs of one seed have the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable


class Trace:
    """`keep` keeps the lines to show them; the digest is always of all of them."""

    def __init__(self, clock: Callable[[], float], *, keep: bool = False) -> None:
        self._clock = clock
        self._digest = hashlib.blake2b(digest_size=16)
        self.lines: list[str] | None = [] if keep else None

    def __call__(self, who: str, what: str) -> None:
        line = f"{self._clock():14.6f} {who or 'world':12} {what}"
        self._digest.update(line.encode())
        if self.lines is not None:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()
