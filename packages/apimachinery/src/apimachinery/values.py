"""Types of the values in configuration files. Imports nothing of the scheduler."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Duration = Annotated[float, Meta(ge=0, extra={"duration": True})]
PositiveInt = Annotated[int, Meta(ge=1)]
Rate = Annotated[float, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Name = Annotated[str, Meta(pattern=r"^\S+$", extra={"allowed": "a name without spaces"})]

#: A setting that takes effect while the process runs, including everything below it. All others need a restart.
LIVE = Meta(extra={"live": True})


def flag(names: str | tuple[str, ...], text: str, metavar: str = "N") -> Meta:
    """Return the flag that overrides a setting; the first name appears in errors.

    `text` is its help, to which the default is added unless it contains it.
    """
    return Meta(extra={"flag": ((names,) if isinstance(names, str) else names, text, metavar)})


class Section(Struct, frozen=True, kw_only=True, rename="camel"):
    """The base class of all sections."""
