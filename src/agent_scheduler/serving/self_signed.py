"""A certificate that a process signs itself and keeps in memory, for a server without one of an authority."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from kube_client.retry import Timing

LIFE: Final = timedelta(days=90)
#: It is replaced after two thirds of its life.
PERIOD: Final = LIFE * 2 / 3
#: Allows for slow clocks.
_BEFORE: Final = timedelta(minutes=5)


class SelfSignedCertificate:
    """Call `begin` before the first handshake, and run `run` as a task. Needs the library cryptography."""

    def __init__(self, hosts: Sequence[str], *, present: Callable[[bytes, bytes], object], timing: Timing) -> None:
        """`hosts` are names in the certificate, without those that it cannot have, which are not ASCII.

        `present` starts to present a certificate with its key (PEM).
        """
        self._hosts = [each for each in hosts if each and each.isascii()]
        self._present = present
        self._timing = timing

    def begin(self) -> None:
        """Create and present a certificate. It takes some milliseconds, and much longer for the first one."""
        self._present(*_signed(self._hosts, self._timing.now()))

    async def run(self) -> None:
        """Replace the certificate in time until cancelled."""
        while True:
            await self._timing.sleep(PERIOD.total_seconds())
            self.begin()


def _signed(hosts: Sequence[str], now: datetime) -> tuple[bytes, bytes]:
    # The library is optional and slow to load.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    # A common name is limited to 64 characters.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    return certificate.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
