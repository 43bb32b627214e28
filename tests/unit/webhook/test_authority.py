"""Certificates that are made and renewed: nobody meets one that he does not trust yet."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.webhook.authority import (
    AUTHORITY_LIFE,
    CERTIFICATE_LIFE,
    SETTLED,
    CertificateBundle,
    UnusableCertificates,
    expiry,
    from_data,
    renewed,
    to_data,
)

HOSTS = ("webhook.here.svc", "webhook.here.svc.cluster.local", "10.0.0.7")
START = datetime(2026, 1, 1, tzinfo=UTC)


def made(now: datetime = START, hosts: Sequence[str] = HOSTS) -> CertificateBundle:
    held = renewed(None, hosts, now)
    assert held is not None
    return held


def trusts(bundle: CertificateBundle, held: CertificateBundle) -> bool:
    certificate = x509.load_pem_x509_certificate(held.certificate)
    for authority in x509.load_pem_x509_certificates(bundle.bundle):
        try:
            certificate.verify_directly_issued_by(authority)
        except Exception:
            continue
        return True
    return False


def test_a_first_certificate_is_for_its_hosts_and_signed_by_the_authority() -> None:
    held = made()
    certificate = x509.load_pem_x509_certificate(held.certificate)
    alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    names = alternative.value
    assert names.get_values_for_type(x509.DNSName) == list(HOSTS[:2])
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == [HOSTS[2]]
    basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage)
    assert (basic.ca, usage.critical, alternative.critical) == (False, False, False)
    assert trusts(held, held)
    assert expiry(held) == (START + CERTIFICATE_LIFE).timestamp()
    assert renewed(held, HOSTS, START) is None


def test_a_name_that_is_longer_than_a_common_name_may_be_is_no_obstacle() -> None:
    host = f"{'a' * 63}.{'b' * 63}.svc"
    assert trusts(held := made(hosts=(host,)), held)


def test_a_certificate_is_renewed_with_a_third_of_its_life_left() -> None:
    held, third = made(), CERTIFICATE_LIFE / 3
    assert renewed(held, HOSTS, START + 2 * third - timedelta(hours=1)) is None
    after = renewed(held, HOSTS, START + 2 * third + timedelta(hours=1))
    assert after is not None
    assert after.trusted == held.trusted
    assert after.key != held.key


def test_other_hosts_get_another_certificate_at_once() -> None:
    held = made()
    after = renewed(held, ("elsewhere",), START)
    assert after is not None
    # Of the same authority, and also when only one of them differs, or the old one has ended.
    assert renewed(held, HOSTS[:2], START) is not None
    ended = renewed(held, HOSTS, START + CERTIFICATE_LIFE)
    assert ended is not None and expiry(ended) > (START + CERTIFICATE_LIFE).timestamp()
    assert after.trusted == held.trusted
    assert renewed(after, ("elsewhere",), START) is None


def test_a_new_authority_is_trusted_for_a_while_before_it_signs() -> None:
    # Just after its certificate was renewed, so that this is not due.
    held, now = made(), START
    while now < START + AUTHORITY_LIFE * 2 / 3:
        now += timedelta(days=7)
        held = renewed(held, HOSTS, now) or held
    assert len(held.trusted) == 2
    before = renewed(held, HOSTS, now + SETTLED - timedelta(minutes=1)) or held
    assert before.certificate == held.certificate
    after = renewed(held, HOSTS, now + SETTLED)
    assert after is not None
    assert after.trusted == held.trusted
    assert after.certificate != held.certificate
    assert trusts(held, after)


def test_what_has_ended_long_ago_is_made_anew() -> None:
    held = made()
    after = renewed(held, HOSTS, START + timedelta(days=1000))
    assert after is not None
    assert len(after.trusted) == 1
    assert trusts(after, after)


@given(hours=st.lists(st.floats(min_value=0.01, max_value=24 * 20), max_size=25))
def test_at_any_look_the_certificate_is_good_and_trusted_by_those_of_the_look_before(hours: list[float]) -> None:
    now, held = START, made()
    for each in hours:
        now += timedelta(hours=each)
        after = renewed(held, HOSTS, now) or held
        assert trusts(held, after), "by those who have not read the new bundle"
        assert trusts(after, held), "while another replica still presents the old one"
        assert trusts(after, after)
        assert expiry(after) > now.timestamp()
        held = after


# ---- in the Secret


def test_what_is_written_is_read_again() -> None:
    held = made()
    assert from_data(to_data(held)) == held
    assert from_data({}) is None
    assert from_data({"other": "eA=="}) is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"ca.key": None}, "there is no ca.key"),
        ({"tls.crt": "!"}, "base64"),
        ({"tls.crt": base64.b64encode(b"no PEM").decode()}, "PEM"),
        ({"ca.crt": ""}, "PEM"),
        ({"tls.key": to_data(made())["tls.key"]}, "a key does not match its certificate"),
        ({"ca.key": to_data(made())["ca.key"]}, "a key does not match its certificate"),
    ],
)
def test_what_does_not_belong_together_is_not_used(changed: dict[str, str | None], expected: str) -> None:
    data = {key: text for key, text in {**to_data(made()), **changed}.items() if text is not None}
    with pytest.raises(UnusableCertificates, match=expected):
        from_data(data)
