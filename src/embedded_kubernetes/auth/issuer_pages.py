"""What the issuer of service accounts' tokens tells about itself: OpenID Connect discovery and the key set."""

from __future__ import annotations

from typing import Any

from .account_tokens import Issuer
from .jwt import ALGORITHM

CONFIGURATION, KEYS = "/.well-known/openid-configuration", "/openid/v1/jwks"


def page(path: str, issuer: Issuer, address: str) -> tuple[dict[str, Any], str] | None:
    """The document at a path and its content type; None for any other path. `address` is the server's, with port."""
    if path == CONFIGURATION:
        document = {
            "issuer": issuer.name,
            "jwks_uri": f"https://{address}{KEYS}",
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": [ALGORITHM],
        }
        return document, "application/json"
    if path == KEYS:
        return issuer.keys.document(), "application/jwk-set+json"
    return None
