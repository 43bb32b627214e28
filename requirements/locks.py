"""Reads the lock files."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
#: #: `name==1.2 ; marker \`, or any other text that pip would take for a requirement.
_PIN = re.compile(r"(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)\s*(?:;\s*(?P<marker>[^\\]*))?\\?")
#: #: The hash of a pin. Any longer option, path or address in a lock would be installed without a hash.
_HASH = re.compile(r"\s+--hash=(?P<hash>\S+)(?:\s*\\)?")


class LockError(Exception):
    """A line of a lock is invalid; the text names the lock, the line, and what is allowed there."""


@dataclass(frozen=True)
class Pin:
    """One requirement. Pins of the same name differ by `marker`; `via` names the distributions that require it."""

    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]
    via: tuple[str, ...]
    place: str

    @property
    def said(self) -> str:
        return f"{self.place}: {self.name}=={self.version}"


def canonical(name: str) -> str:
    """Return the normalized name, as in the index; names are compared in this form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def read(path: Path) -> list[Pin]:
    """Return all pins of a lock. Raise LockError for a line that pins nothing."""
    found: list[Pin] = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        place = f"{path.name}:{number}"
        comment = re.fullmatch(r"\s+#(?: via| {3})? ?(?P<of>.*)", line)
        if not line.strip() or line.startswith("#"):
            continue
        if found and comment is not None:
            found[-1] = _with(found[-1], via=comment["of"].strip())
        elif found and (hashed := _HASH.fullmatch(line)):
            found[-1] = _with(found[-1], hashed=hashed["hash"])
        elif pin := _PIN.fullmatch(line):
            marker = (pin["marker"] or "").strip()
            found.append(Pin(canonical(pin["name"]), pin["version"], marker, (), (), place))
        else:
            raise LockError(f"{place}: {line.strip()!r} pins nothing; allowed: NAME==VERSION and --hash=sha256:...")
    return found


def _with(pin: Pin, *, via: str = "", hashed: str = "") -> Pin:
    # # `-c FILE` names a constraint, not a distribution that requires the pin.
    vias = () if not via or via.startswith("-c ") else (via.split(" ")[0],)
    hashes = (hashed,) if hashed else ()
    return Pin(pin.name, pin.version, pin.marker, pin.hashes + hashes, pin.via + vias, pin.place)
