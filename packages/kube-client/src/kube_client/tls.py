"""The authority that connections trust and the client certificate they present, both of which may be replaced.

Files are checked once a minute, and sooner after a refusal. They are compared by content, so a projected volume's
symlink counts as well as a rewritten file. A change creates a new `SSLContext`; connections with the old one are then
closed (`Endpoint.ssl_context`). The old context stays in use until the new one is complete. If the files are just
being replaced (a new certificate beside the old key), nothing is used, and they are checked again soon.
"""

from __future__ import annotations

import hashlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from kube_client.credentials import REFUSED_SECONDS, RELOAD_SECONDS
from kube_client.logs import get_logger
from kube_client.retry import REAL, Clock

#: PEM data, or a file with PEM data.
Pem = bytes | Path

_log = get_logger(__name__)


class Tls:
    """Provides the context for the next connection. Raises OSError or SSLError if `authority` has no certificates.

    Without an `authority`, the system's authorities are trusted. With `insecure`, the server is not verified.
    """

    def __init__(self, *, authority: Pem | None = None, insecure: bool = False, clock: Clock = REAL.clock) -> None:
        self._insecure = insecure
        self._clock = clock
        self._sources: tuple[Pem | None, Pem | None, Pem | None] = (authority, None, None)
        #: The digest of the last attempt's files, and whether the attempt failed.
        self._digest = b""
        self._failed = False
        self._refused = False
        self._looked_at = clock()
        self._context = self._made(self._read())

    def context(self) -> ssl.SSLContext:
        """Return the current context; a different object after a change."""
        age = self._clock() - self._looked_at
        if age >= (REFUSED_SECONDS if self._failed or self._refused else RELOAD_SECONDS):
            self._look()
        return self._context

    def refused(self) -> None:
        """Check the files soon, because one side did not accept the other's certificate."""
        self._refused = True

    def identify(self, certificate: Pem, key: Pem) -> None:
        """Present this client certificate from now on. Raises OSError or SSLError, and then changes nothing."""
        before = self._sources
        self._sources = (before[0], certificate, key)
        try:
            parts = self._read()
            if _digest(parts) != self._digest:
                self._context = self._made(parts)
        except BaseException:
            self._sources = before
            raise
        self._failed = False

    def _look(self) -> None:
        self._looked_at, self._refused = self._clock(), False
        try:
            parts = self._read()
            digest = _digest(parts)
            if digest == self._digest:
                self._failed = False
                return
            self._context = self._made(parts)
        except OSError as error:  # SSLError is one
            if not self._failed:
                files = [str(source) for source in self._sources if isinstance(source, Path)]
                _log.warning("certificates unusable", files=files, error=str(error), in_use="the previous ones")
            self._failed = True
        else:
            _log.info("certificates replaced")
            self._failed = False

    def _read(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        authority, certificate, key = (
            source.read_bytes() if isinstance(source, Path) else source for source in self._sources
        )
        return authority, certificate, key

    def _made(self, parts: tuple[bytes | None, bytes | None, bytes | None]) -> ssl.SSLContext:
        authority, certificate, key = parts
        cadata = None if authority is None else authority.decode("ascii", "ignore")
        if cadata is not None and "-----BEGIN" not in cadata:
            raise ssl.SSLError("no PEM certificate")
        context = ssl.create_default_context(cadata=cadata)
        # Python 3.13 enables RFC 5280 strictness, which refuses cluster authorities made by older tools (no key
        # identifiers). client-go accepts them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self._insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate is not None and key is not None:
            load_certificate(context, certificate, key)
        self._digest = _digest(parts)
        return context


def _digest(parts: tuple[bytes | None, ...]) -> bytes:
    return b"".join(hashlib.sha256(part).digest() if part is not None else b"-" for part in parts)


def load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load PEM bytes, which ssl reads only from files. Raises OSError or SSLError."""
    with _as_file(certificate) as certificate_file, _as_file(key) as key_file:
        context.load_cert_chain(certificate_file, key_file, password=_no_password)


def _no_password() -> NoReturn:
    # Otherwise OpenSSL would ask for the password on the terminal.
    raise ssl.SSLError("the key is encrypted, and no password is available")


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Provide a file in memory, which needs no writable folder; on systems without such, a temporary file."""
    try:
        descriptor = os.memfd_create("kube-client", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}"
    except (AttributeError, OSError):
        descriptor = -1
    if descriptor >= 0 and os.path.exists(path):
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            yield path
        return
    if descriptor >= 0:
        os.close(descriptor)
    try:
        temporary = tempfile.NamedTemporaryFile(prefix="kube-client-")  # noqa: SIM115 - closed below
    except OSError as error:
        raise OSError(
            f"certificates can be loaded only from files; this system has no files in memory, and {error}; "
            "set TMPDIR to a writable folder"
        ) from error
    with temporary:
        temporary.write(content)
        temporary.flush()
        yield temporary.name
