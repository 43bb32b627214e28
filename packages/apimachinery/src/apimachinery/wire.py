"""The base of structs for objects on the wire, and types that many of them share.

A struct declares only the fields that its users read; msgspec skips the others, so unknown fields cost nothing and do
no harm. Structs are frozen: an object from a watch is a value that all users share.
"""

from __future__ import annotations

from msgspec import Struct

Quantity = str | int | float
Resources = dict[str, Quantity]


class Wire(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The base class of all wire structs. `gc=False` is safe because no wire struct can be part of a cycle."""
