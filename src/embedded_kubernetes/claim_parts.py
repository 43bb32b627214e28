"""The parts of a stored ResourceClaim that say who may use it, and until when; nothing else of it is decoded."""

from __future__ import annotations

import msgspec
from msgspec import Struct


class Owner(Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Struct, rename="camel"):
    finalizers: list[str] | None = None
    owner_references: list[Owner] | None = None


class Consumer(Struct, rename="camel"):
    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class Status(Struct, rename="camel"):
    allocation: msgspec.Raw = msgspec.Raw()
    reserved_for: list[Consumer] | None = None

    @property
    def is_allocated(self) -> bool:
        return bytes(self.allocation) not in (b"", b"null", b"{}")


class Claim(Struct):
    metadata: Metadata
    status: Status = msgspec.field(default_factory=Status)


read_claim = msgspec.json.Decoder(Claim).decode
