"""The certificate that a server presents, which may be replaced while it serves."""

from __future__ import annotations

import hashlib
import ssl

from agent_scheduler.kube.tls import load_certificate


class ServingCertificate:
    """Owner of `context`, by which a server speaks TLS; without a certificate it fails in every handshake."""

    def __init__(self) -> None:
        self.context = _server_context()
        self._digest = b""

    def present(self, certificate: bytes, key: bytes) -> bool:
        """Present this one (PEM) on connections that are made from now on. Returns whether it is another one.

        Raises OSError for what cannot be used, and then nothing has changed.
        """
        digest = hashlib.sha256(certificate).digest() + hashlib.sha256(key).digest()
        if digest == self._digest:
            return False
        # On one of its own first: the context in use would be left with a new certificate beside the old key.
        load_certificate(_server_context(), certificate, key)
        load_certificate(self.context, certificate, key)
        self._digest = digest
        return True


def _server_context() -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
