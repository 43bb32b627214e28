"""Values that files of settings are made of, whatever they set. Imports nothing of the scheduler."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Duration = Annotated[float, Meta(ge=0, extra={"duration": True})]
PositiveInt = Annotated[int, Meta(ge=1)]
Rate = Annotated[float, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Name = Annotated[str, Meta(pattern=r"^\S+$", extra={"allowed": "a name without spaces"})]


class Section(Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of all sections."""
