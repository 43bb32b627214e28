"""A certificate and its key from files that are maintained externally.

The files are compared by content, because a mounted Secret is replaced by swapping symbolic links.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent_scheduler.serving.sources import ServingError
from agent_scheduler.telemetry.logs import get_logger
from kube_client.credentials import REFUSED_SECONDS
from kube_client.retry import Timing

#: Seconds between two checks. Files that do not match yet during a replacement are checked again after the same time.
PERIOD: Final = REFUSED_SECONDS


class GivenCertificates:
    """Watches the files. Run `run` as a task. Invalid files are ignored, and the previous certificate stays in use."""

    def __init__(
        self, certificate: Path, key: Path, *, present: Callable[[bytes, bytes], object], timing: Timing
    ) -> None:
        """`present` starts to present a certificate with its key (PEM). Raises OSError."""
        self._certificate = certificate
        self._key = key
        self._present = present
        self._timing = timing
        self._log = get_logger("serving")
        self._problem = ""

    def begin(self) -> None:
        """Present the current files. Raises ServingError with their names."""
        try:
            self._read()
        except OSError as error:  # SSLError is one
            files = f"the certificate {self._certificate} with the key {self._key}"
            raise ServingError(f"cannot use {files}: {error.strerror or error}") from None

    def _read(self) -> None:
        self._present(self._certificate.read_bytes(), self._key.read_bytes())

    async def run(self) -> None:
        """Check the files until cancelled."""
        while True:
            await self._timing.sleep(PERIOD)
            self.look()

    def look(self) -> None:
        try:
            self._read()
        except OSError as error:  # SSLError is one
            if str(error) != self._problem:
                files = [str(self._certificate), str(self._key)]
                self._log.warning("certificate unusable", files=files, problem=str(error), in_use="the previous one")
            self._problem = str(error)
        else:
            self._problem = ""
