"""A certificate and its key from files, which somebody else keeps and replaces.

The files are compared by their content, as a Secret that is mounted is replaced by swapping symbolic links.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from agent_scheduler.kube.credentials import REFUSED_SECONDS
from agent_scheduler.kube.retry import Timing
from agent_scheduler.serving.sources import ServingError
from agent_scheduler.telemetry.logs import get_logger

#: Seconds between two looks; amid being replaced the two do not fit, and are looked at again as soon.
PERIOD: Final = REFUSED_SECONDS


class GivenCertificates:
    """Run `run`. Of files that cannot be used nothing is, and what was used before still is."""

    def __init__(
        self, certificate: Path, key: Path, *, present: Callable[[bytes, bytes], object], timing: Timing
    ) -> None:
        """`present` shows a certificate with its key (PEM) from now on. Raises OSError."""
        self._certificate = certificate
        self._key = key
        self._present = present
        self._timing = timing
        self._log = get_logger("serving")
        self._problem = ""

    def begin(self) -> None:
        """Present what the files have now. Raises ServingError naming them."""
        try:
            self._read()
        except OSError as error:  # SSLError is one
            files = f"the certificate {self._certificate} with the key {self._key}"
            raise ServingError(f"cannot use {files}: {error.strerror or error}") from None

    def _read(self) -> None:
        self._present(self._certificate.read_bytes(), self._key.read_bytes())

    async def run(self) -> None:
        """Look at the files until cancelled."""
        while True:
            await self._timing.sleep(PERIOD)
            self.look()

    def look(self) -> None:
        try:
            self._read()
        except OSError as error:  # SSLError is one
            if str(error) != self._problem:
                files = [str(self._certificate), str(self._key)]
                self._log.warning(
                    "certificate unusable", files=files, problem=str(error), in_use="that of before"
                )
            self._problem = str(error)
        else:
            self._problem = ""
