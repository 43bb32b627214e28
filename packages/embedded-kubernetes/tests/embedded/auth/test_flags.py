"""The flags of `cluster` about authentication and authorization."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from embedded.support import cases
from embedded_kubernetes import cluster
from embedded_kubernetes.assembly import options_of
from embedded_kubernetes.auth.identity import MASTERS
from embedded_kubernetes.auth.options import Options
from embedded_kubernetes.settings import SettingError


def read(*flags: str) -> tuple[Options, str]:
    parser = argparse.ArgumentParser()
    cluster.add_arguments(parser)
    settings = cluster.settings_of(parser.parse_args(flags))
    return options_of(settings), settings.token


def refusal(*flags: str) -> str:
    with pytest.raises(SettingError) as refused:
        read(*flags)
    return refused.value.as_flag()


def test_rbac_makes_an_administrators_token_unless_one_is_given():
    options, token = read("--authorization-mode", "RBAC")
    other = read("--authorization-mode", "RBAC")[1]
    assert token != other
    assert options.tokens[token].groups[0] == MASTERS
    assert options.anonymous is True
    assert read("--authorization-mode", "RBAC", "--token", "t", "--no-anonymous-auth")[1] == "t"


def test_users_come_from_a_token_file(tmp_path: Path):
    file = tmp_path / "tokens.csv"
    file.write_text('# people\nt1,ann,u1,"dev,ops"\nt2,bob,u2\n')
    options, _ = read("--token-auth-file", str(file), "--api-audiences", "a,b")
    assert options.tokens["t1"].groups == ("dev", "ops")
    assert (options.tokens["t2"].name, options.tokens["t2"].uid) == ("bob", "u2")
    assert (options.asks, options.anonymous, options.audiences) == (True, True, ("a", "b"))


@cases(r"""
    text | said
    t,ann | 'line 1: at least a token, a user and a uid, not 2 columns'
    "\n,ann,u" | 'line 2: the token is empty'
    "t,ann,u\nt,bob,v" | 'line 2: the token was given before'
    """)
def test_a_bad_token_file_names_the_line(tmp_path: Path, text: str, said: str):
    file = tmp_path / "tokens.csv"
    file.write_text(text)
    assert refusal("--token-auth-file", str(file)) == f"--token-auth-file {file}: {said}"


def test_a_key_file_has_an_rsa_key(tmp_path: Path):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    def written(key: Any) -> str:
        file = tmp_path / "key.pem"
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        file.write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
        return str(file)

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    keys = read("--service-account-signing-key-file", written(key))[0].keys
    assert keys.identifier == read("--service-account-signing-key-file", written(key))[0].keys.identifier
    keys.verify(keys.sign({"a": 1}))
    wrong = written(ec.generate_private_key(ec.SECP256R1()))
    assert "no PEM file with an RSA private key" in refusal("--service-account-signing-key-file", wrong)
