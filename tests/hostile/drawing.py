"""What hostile objects consist of: odd texts, deep values, extreme numbers, and many of everything."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from embedded_kubernetes import nesting
from embedded_kubernetes.nesting import Deep

T = TypeVar("T")
Object = dict[str, Any]

INT32: Final = 2**31 - 1
INT64: Final = 2**63 - 1
#: The largest amount of an extended resource: its thousandths are an int64.
MOST: Final = INT64 // 1000
#: Times at the ends of RFC 3339.
TIMES: Final = ("0001-01-01T00:00:01Z", "1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z")
#: Right-to-left overrides, escape sequences, a NUL, a byte order mark, letters beyond the basic plane, combining marks.
TEXTS: Final = (
    "\u202edetsoh\u202c",
    "\x1b[2J\x1b]0;title\x07",
    "a\x00b\r\n\tc",
    "\ufeff\u200b\u2028\u2029",
    "\U0001f4a5\U0010ffff\ufffe",
    "e" + "\u0301" * 200,
    "\u0663\u0664\u00b2\u2460",
    "'\"\\<script>{{.}}%s${x}",
    " ",
    "",
)
#: Quantities that a CustomResourceDefinition accepts, as the API server stores them.
QUANTITIES: Final = (
    "9" * 900,
    "1e-27",
    "-1",
    "-" + "9" * 30,
    "1e999999999",
    "1e-999999999",
    "1E99999999999999999999",
    "1e.5",
    ".5",
    "5.",
    "+0",
    "1Ei",
    "9223372036854775807",
    "9223372036854775808",
    "0." + "3" * 900,
    0,
    -INT64,
    INT64,
)
#: Quantities that a built-in kind accepts for a request.
AMOUNTS: Final = ("9" * 900, "1e-27", "1Ei", "8Ei", "9223372036854775807", "0." + "3" * 600, "1e18", "0", "1n")
#: The limit of all annotations of an object, and of one with some room for the rest: etcd stores 1.5 MiB.
ANNOTATIONS: Final = 256 * 1024
SIZE: Final = 1_400_000


@dataclass
class Draw:
    """A source of the parts of one object. `scale` 1 draws what an API server accepts at most."""

    rng: random.Random
    scale: float = 1.0
    name: str = "hostile"
    namespace: str = "default"
    #: Names that exist, for references.
    nodes: tuple[str, ...] = ("n1",)
    _made: int = field(default=0, init=False)

    def count(self, most: int, least: int = 2) -> int:
        """Return a number of items near `most`, scaled."""
        return max(least, min(most, int(most * self.scale * self.rng.uniform(0.9, 1.0))))

    def many(self, most: int, make: Callable[[int], T]) -> list[T]:
        return [make(number) for number in range(self.count(most))]

    def some(self, *among: T) -> T:
        return self.rng.choice(among)

    def text(self) -> str:
        return self.rng.choice(TEXTS[:-1])

    def long(self, size: int) -> str:
        """Return a text of this size in bytes, scaled."""
        return "x" * self.count(size)

    def time(self) -> str:
        return self.rng.choice(TIMES)

    def deep(self, most: int = 9_900, limit: int = SIZE) -> Deep:
        """Return a value of about `most` levels, not scaled: depth costs few bytes. `limit` is in bytes."""
        least = most // 10
        levels = self.rng.choice((least, most // 5, most))
        pair, close = self.rng.choice(((b'{"a":', b"}"), (b"[", b"]"), (b'{"":[', b"]}")))
        repeated = min(levels // (2 if close == b"]}" else 1), limit // (len(pair) + len(close)) - 1)
        return Deep(pair * repeated + b"1" + close * repeated)


def encoded(body: Object) -> bytes:
    """Return the object as JSON, with its `Deep` values."""
    return nesting.dumps(body)
