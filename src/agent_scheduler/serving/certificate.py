"""The certificate of a server, which can be replaced while the server is running."""

from __future__ import annotations

import hashlib
import ssl

from kube_client.tls import load_certificate


class ServingCertificate:
    """Owns the TLS `context` of a server. Without a certificate every handshake fails."""

    def __init__(self) -> None:
        self.context = _server_context()
        self._digest = b""

    def present(self, certificate: bytes, key: bytes) -> bool:
        """Present this certificate (PEM) on new connections. Return whether it differs from the previous one.

        Raises OSError if it cannot be used, and then changes nothing.
        """
        digest = hashlib.sha256(certificate).digest() + hashlib.sha256(key).digest()
        if digest == self._digest:
            return False
        # Tested with a separate context first: a failure would leave the used one with a new certificate and the old
        # key.
        load_certificate(_server_context(), certificate, key)
        load_certificate(self.context, certificate, key)
        self._digest = digest
        return True


def _server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
