"""`Options` from the flags of the `cluster` command, which are kube-apiserver's."""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path

from .authentication import read_tokens
from .identity import User
from .jwt import Keys
from .options import ADMIN, ISSUER, MODES, OPEN_PATHS, Options


class FlagError(ValueError):
    """A flag that cannot be followed; the text names it."""


def options_of(args: argparse.Namespace) -> tuple[Options, str]:
    """How the server is to decide, and an administrator's token; empty if nobody is asked. Raises `FlagError`."""
    rbac = _rbac(args.authorization_mode)
    tokens = _tokens(args.token_auth_file)
    admin: str = args.token or (secrets.token_urlsafe(24) if rbac else "")
    if admin:
        tokens[admin] = ADMIN
    one_token = bool(args.token) and not rbac and args.token_auth_file is None
    options = Options(
        asks=rbac or bool(tokens),
        rbac=rbac,
        tokens=tokens,
        anonymous=OPEN_PATHS if one_token else args.anonymous_auth,
        issuer=args.service_account_issuer or ISSUER,
        audiences=tuple(filter(None, args.api_audiences.split(","))),
        keys=_keys(args.service_account_signing_key_file),
    )
    return options, admin


def _rbac(mode: str) -> bool:
    if mode not in MODES:
        raise FlagError(f"--authorization-mode: must be one of {', '.join(MODES)}, not {mode}")
    return mode == "RBAC"


def _tokens(file: Path | None) -> dict[str, User]:
    if file is None:
        return {}
    try:
        return read_tokens(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise FlagError(f"--token-auth-file {file}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise FlagError(f"--token-auth-file {file}: {error}") from None


def _keys(file: Path | None) -> Keys:
    if file is None:
        return Keys()
    flag = f"--service-account-signing-key-file {file}"
    try:
        return Keys.read(file.read_bytes())
    except OSError as error:
        raise FlagError(f"{flag}: cannot be read: {error.strerror or error}") from None
    except (ValueError, TypeError) as error:
        raise FlagError(f"{flag}: no PEM file with an RSA private key: {error}") from None
