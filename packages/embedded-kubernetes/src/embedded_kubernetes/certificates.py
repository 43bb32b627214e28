"""Certificates for `cluster --tls`: a temporary certificate authority, and a server certificate signed by it.

They are generated at every start, or kept in the directory of `--data-dir` while they are valid. Otherwise only the
authority's certificate is written to disk, in the kubeconfig. The authority's key is discarded after signing.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .server import tls_context

#: Long enough for a demo, and short enough to limit the damage of a leaked key.
LIFETIME = timedelta(days=7)


class Certificates(NamedTuple):
    """PEM texts: the authority that clients trust, and the server's certificate and key."""

    authority: bytes
    certificate: bytes
    key: bytes


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def make_certificates(hosts: Iterable[str], *, now: float) -> Certificates:
    """Generate certificates for a server at `hosts` (names or addresses). `now` is seconds since 1970."""
    start = datetime.fromtimestamp(now, UTC) - timedelta(minutes=5)
    end = start + LIFETIME
    authority_key = ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
    authority_name = _name("embedded-kubernetes")
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())

    def certificate(name: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool) -> x509.CertificateBuilder:
        unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        usage = dict.fromkeys((*unused, "encipher_only", "decipher_only"), False)
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(authority_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
            .add_extension(x509.KeyUsage(**usage, digital_signature=True, key_cert_sign=ca, crl_sign=ca), critical=True)
        )

    authority = (
        certificate(authority_name, authority_key, ca=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    server = (
        certificate(_name("kube-apiserver"), server_key, ca=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([_alternative(host) for host in dict.fromkeys(hosts)]), critical=False
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    return Certificates(
        authority=authority.public_bytes(pem),
        certificate=server.public_bytes(pem),
        key=server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def made_text(certificates: Certificates) -> bytes:
    """Return the certificates as the contents of a file, for `read_text`."""
    return orjson.dumps({name: text.decode() for name, text in certificates._asdict().items()})


def read_text(data: bytes) -> Certificates | None:
    """Return the certificates of a file; None if it is malformed."""
    try:
        return Certificates(**{name: text.encode() for name, text in orjson.loads(data).items()})
    except (ValueError, TypeError, AttributeError):
        return None


def are_valid(certificates: Certificates, hosts: Iterable[str], *, now: float) -> bool:
    """Return whether kept certificates are of these hosts, and valid for another day."""
    try:
        found = x509.load_pem_x509_certificate(certificates.certificate)
    except ValueError:
        return False
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    end = datetime.fromtimestamp(now, UTC) + timedelta(days=1)
    return found.not_valid_after_utc > end and [*names] == [_alternative(host) for host in dict.fromkeys(hosts)]


def server_context(certificates: Certificates) -> ssl.SSLContext:
    """Return the server's TLS context with these certificates."""
    # The ssl module reads keys from files only. The folder is readable only by its owner and deleted immediately.
    with tempfile.TemporaryDirectory() as folder:
        chain, key = Path(folder, "server.pem"), Path(folder, "key.pem")
        chain.write_bytes(certificates.certificate)
        key.write_bytes(certificates.key)
        return tls_context(chain, key)
