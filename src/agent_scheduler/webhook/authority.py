"""Creates a webhook's own certificates: an authority, and a serving certificate signed by it.

Pure except for keys and serial numbers, which are random. Both are renewed in the last third of their lifetime. A new
authority signs nothing for `SETTLED`, so that all clients can start to trust it; the old one is trusted until it
expires. So every certificate is trusted when it comes into use.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE: Final = timedelta(days=365)
CERTIFICATE_LIFE: Final = timedelta(days=90)
SETTLED: Final = timedelta(hours=1)
#: Allows for slow clocks.
_BEFORE: Final = timedelta(minutes=5)

_AUTHORITY: Final = "agent-scheduler webhook authority"
_PEM: Final = serialization.Encoding.PEM
_UNUSED: Final = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")

#: Keys of the Secret, including those of the type kubernetes.io/tls.
_TRUSTED, _AUTHORITY_KEY, _CERTIFICATE, _KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"


class UnusableCertificates(ValueError):
    """The Secret contains data of another kind. The message says what is wrong."""


class CertificateBundle(NamedTuple):
    """PEM texts. `trusted` has the authorities, the newest first; `authority_key` is the key of the first one."""

    trusted: tuple[bytes, ...]
    authority_key: bytes
    certificate: bytes
    key: bytes

    @property
    def bundle(self) -> bytes:
        """The certificates that clients must trust."""
        return b"".join(self.trusted)


def renewed(held: CertificateBundle | None, hosts: Sequence[str], now: datetime) -> CertificateBundle | None:
    """Return the replacement of `held`, or None if nothing is due. `hosts` are names and addresses of the server."""
    trusted = [_loaded(each) for each in held.trusted] if held is not None else []
    trusted = [each for each in trusted if each.not_valid_after_utc > now]
    if held is None or not trusted or _is_due(trusted[0], now):
        key = ec.generate_private_key(ec.SECP256R1())
        newest = _authority(key, now)
        trusted, authority_key = [newest, *trusted], _text(key)
    else:
        newest, authority_key = trusted[0], held.authority_key
    pair = (held.certificate, held.key) if held is not None else (b"", b"")
    if held is None or _is_to_be_signed(_loaded(held.certificate), trusted, hosts, now):
        pair = _signed(newest, authority_key, hosts, now)
    after = CertificateBundle(tuple(each.public_bytes(_PEM) for each in trusted), authority_key, *pair)
    return None if after == held else after


def expiry(held: CertificateBundle) -> float:
    """Return when the serving certificate expires, in seconds since 1970."""
    return _loaded(held.certificate).not_valid_after_utc.timestamp()


def to_data(held: CertificateBundle) -> dict[str, str]:
    """Return the `data` of a Secret."""
    parts = (held.bundle, held.authority_key, held.certificate, held.key)
    names = (_TRUSTED, _AUTHORITY_KEY, _CERTIFICATE, _KEY)
    return {name: b64encode(part).decode() for name, part in zip(names, parts, strict=True)}


def from_data(data: Mapping[str, str]) -> CertificateBundle | None:
    """Read the `data` of a Secret; None if it is empty. Raises UnusableCertificates."""
    names = (_TRUSTED, _AUTHORITY_KEY, _CERTIFICATE, _KEY)
    if not any(data.get(name) for name in names):
        return None
    try:
        bundle, authority_key, certificate, key = (b64decode(data[name], validate=True) for name in names)
        trusted = x509.load_pem_x509_certificates(bundle)
        for owner, owned in ((trusted[0], authority_key), (_loaded(certificate), key)):
            private = serialization.load_pem_private_key(owned, None)
            if owner.public_key() != private.public_key():
                raise UnusableCertificates("a key does not match its certificate")
    except KeyError as error:
        raise UnusableCertificates(f"there is no {error.args[0]}") from None
    except (ValueError, TypeError) as error:
        raise UnusableCertificates(str(error)) from None
    return CertificateBundle(tuple(each.public_bytes(_PEM) for each in trusted), authority_key, certificate, key)


def _is_due(certificate: x509.Certificate, now: datetime) -> bool:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return end - now < (end - begin) / 3


def _is_to_be_signed(
    certificate: x509.Certificate, trusted: Sequence[x509.Certificate], hosts: Sequence[str], now: datetime
) -> bool:
    if _hosts_of(certificate) != {_alternative(host) for host in hosts}:
        return True
    if certificate.not_valid_after_utc <= now or not any(_has_signed(each, certificate) for each in trusted):
        return True
    newest = trusted[0]
    if now - newest.not_valid_before_utc < SETTLED + _BEFORE:
        return False
    return _is_due(certificate, now) or not _has_signed(newest, certificate)


def _has_signed(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _hosts_of(certificate: x509.Certificate) -> set[x509.GeneralName]:
    try:
        return set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return set()


def _authority(key: ec.EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    name = _name(_AUTHORITY)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    unsigned = _unsigned(name, name, key, now=now, life=AUTHORITY_LIFE, ca=True)
    return unsigned.add_extension(identifier, critical=False).sign(key, hashes.SHA256())


def _signed(
    authority: x509.Certificate, authority_key: bytes, hosts: Sequence[str], now: datetime
) -> tuple[bytes, bytes]:
    """Create a certificate for `hosts` with its key."""
    signing = serialization.load_pem_private_key(authority_key, None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    # A certificate is invalid once its authority has expired.
    life = min(CERTIFICATE_LIFE, authority.not_valid_after_utc - now)
    identifier = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        _unsigned(_name(hosts[0]), authority.subject, key, now=now, life=life, ca=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(signing, hashes.SHA256())
    )
    return certificate.public_bytes(_PEM), _text(key)


def _unsigned(
    name: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, now: datetime, life: timedelta, ca: bool
) -> x509.CertificateBuilder:
    usage = dict.fromkeys((*_UNUSED, "encipher_only", "decipher_only"), False)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
        .add_extension(x509.KeyUsage(**usage, digital_signature=True, key_cert_sign=ca, crl_sign=ca), critical=True)
    )


def _name(text: str) -> x509.Name:
    # A common name is limited to 64 characters; the alternative names contain the hosts.
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternatives(hosts: Iterable[str]) -> list[x509.GeneralName]:
    return [_alternative(host) for host in dict.fromkeys(hosts)]


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _loaded(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def _text(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
