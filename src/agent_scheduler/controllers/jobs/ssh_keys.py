"""Creates key pairs for the plugin ssh. Requires `cryptography`, which the image contains."""

from __future__ import annotations

from .plugins.ssh import KeyPair


def new_pair() -> KeyPair:
    """Create an Ed25519 pair, which is as strong as RSA of 3072 bits and fast to create.

    Raises ModuleNotFoundError without `cryptography`.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ed25519

    key = ed25519.Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private.decode(), public.decode() + "\n")
