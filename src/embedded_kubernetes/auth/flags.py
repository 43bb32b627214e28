"""`Options` from the settings of a cluster, which are kube-apiserver's flags."""

from __future__ import annotations

from pathlib import Path

from ..settings import File, SettingError, Settings
from .authentication import read_tokens
from .identity import User
from .jwt import Keys
from .options import ADMIN, ISSUER, OPEN_PATHS, Options


def options_of(settings: Settings) -> Options:
    """How the server is to decide. Raises `SettingError` for a file that cannot be used."""
    tokens = {**_tokens(settings.token_auth_file), **settings.users}
    only_token = not settings.rbac and settings.token_auth_file is None and not settings.users
    if settings.token:
        tokens[settings.token] = ADMIN
    return Options(
        asks=settings.rbac or bool(tokens),
        rbac=settings.rbac,
        tokens=tokens,
        anonymous=OPEN_PATHS if tokens and only_token else settings.anonymous_auth,
        issuer=settings.service_account_issuer or ISSUER,
        audiences=tuple(filter(None, settings.api_audiences.split(","))),
        keys=_keys(settings.service_account_signing_key_file),
    )


def _tokens(file: File | None) -> dict[str, User]:
    if file is None:
        return {}
    try:
        return read_tokens(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        raise SettingError("token_auth_file", why, file) from None
    except ValueError as error:
        raise SettingError("token_auth_file", str(error), file) from None


def _keys(file: File | None) -> Keys:
    if file is None:
        return Keys()
    try:
        return Keys.read(Path(file).read_bytes())
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
    except (ValueError, TypeError) as error:
        why = f"no PEM file with an RSA private key: {error}"
    raise SettingError("service_account_signing_key_file", why, file)
