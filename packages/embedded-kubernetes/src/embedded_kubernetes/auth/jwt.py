"""JSON Web Tokens of service accounts, signed by RS256 (RFC 7515, 7518) with one key pair.

Errors that a TokenReview includes have kube-apiserver's wording.
"""

from __future__ import annotations

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import cached_property
from hashlib import sha256
from typing import Any

import orjson
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

ALGORITHM = "RS256"
_BITS = 2048
_PADDING, _HASH = padding.PKCS1v15(), hashes.SHA256()


class TokenError(Exception):
    """A token of this issuer that is invalid; the message is the reason."""


class Unaccepted(Exception):
    """No authenticator accepts the token; the message is the error of a TokenReview."""


class Keys:
    """The key pair that signs and verifies tokens. Without `private`, it is generated at the first use."""

    def __init__(self, private: rsa.RSAPrivateKey | None = None) -> None:
        self._given = private

    @classmethod
    def read(cls, pem: bytes) -> Keys:
        """Read a PEM file's content. Raises ValueError if it has no RSA private key."""
        key = serialization.load_pem_private_key(pem, password=None)
        if not isinstance(key, rsa.RSAPrivateKey):
            raise ValueError("not an RSA private key")
        return cls(key)

    def pem(self) -> bytes:
        """Return the private key in PEM."""
        form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self._private.private_bytes(serialization.Encoding.PEM, form, none)

    @cached_property
    def _private(self) -> rsa.RSAPrivateKey:
        return self._given or rsa.generate_private_key(public_exponent=65537, key_size=_BITS)

    @cached_property
    def identifier(self) -> str:
        """The key's `kid`, a digest of the public key that is derived as in kube-apiserver."""
        der = self._private.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return _encoded(sha256(der).digest())

    def sign(self, claims: dict[str, Any], *, named: bool = True) -> str:
        """Return a token with these claims; its header has the key's `kid` unless `named` is false."""
        header = {"alg": ALGORITHM, **({"kid": self.identifier} if named else {})}
        signed = f"{_encoded(orjson.dumps(header))}.{_encoded(orjson.dumps(claims))}"
        return f"{signed}.{_encoded(self._private.sign(signed.encode(), _PADDING, _HASH))}"

    def verify(self, token: str) -> None:
        """Verify the signature of a token that `claims` has parsed. Raises `TokenError`."""
        signed, _, signature = token.rpartition(".")
        kid = _object(signed.partition(".")[0]).get("kid")
        if kid and kid != self.identifier:
            raise TokenError("invalid signature, no keys found")
        try:
            self._private.public_key().verify(_decoded(signature), signed.encode(), _PADDING, _HASH)
        except (InvalidSignature, ValueError):
            raise TokenError("go-jose/go-jose: error in cryptographic primitive") from None

    def document(self) -> dict[str, Any]:
        """Return the public key as a JSON Web Key Set (RFC 7517)."""
        numbers = self._private.public_key().public_numbers()
        key = {
            "use": "sig",
            "kty": "RSA",
            "kid": self.identifier,
            "alg": ALGORITHM,
            "n": _number(numbers.n),
            "e": _number(numbers.e),
        }
        return {"keys": [key]}


def claims(token: str) -> dict[str, Any] | None:
    """Return the unverified claims of a token; None if it is not a JWT with RS256."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        header, payload = _object(parts[0]), _object(parts[1])
        _decoded(parts[2])
    except ValueError:
        return None
    return payload if header.get("alg") == ALGORITHM else None


def _object(part: str) -> dict[str, Any]:
    found = orjson.loads(_decoded(part))
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def _encoded(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _decoded(text: str) -> bytes:
    if not text.isascii() or "=" in text:
        raise ValueError("not base64url")
    try:
        return urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        raise ValueError("not base64url") from None


def _number(value: int) -> str:
    return _encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))
