"""The shape of a kubeconfig: its sections, and where in it something stands, for errors."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from agent_scheduler.kube.credentials import KubeConfigError


@dataclass(frozen=True, slots=True)
class Section:
    """One mapping of a kubeconfig, and where it stands."""

    where: str
    folder: Path
    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        """A string, or "" if the key is absent or null. Raises KubeConfigError for another type."""
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise KubeConfigError(f"{self.where}.{key} must be a string, not {type(value).__name__}")
        return value

    def data(self, key: str) -> bytes | None:
        """The base64 content of `key`-data. Raises KubeConfigError."""
        text = self.text(f"{key}-data")
        if not text:
            return None
        try:
            return base64.b64decode(text, validate=False)
        except (binascii.Error, ValueError) as error:
            raise KubeConfigError(f"{self.where}.{key}-data is not base64: {error}") from None

    def file(self, key: str) -> Path | None:
        """The file that `key` names, relative to the kubeconfig. Raises KubeConfigError if it is missing."""
        text = self.text(key)
        if not text:
            return None
        path = self.folder / text
        if not path.is_file():
            raise KubeConfigError(f"{self.where}.{key}: no such file: {path}")
        return path


def check_file(file: Path) -> str:
    """Makes sure that the merging below cannot trip over a shape; gives the file's current-context."""
    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise KubeConfigError(f"{file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise KubeConfigError(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise KubeConfigError(f"{file}: not a kubeconfig: the file must hold a mapping")
    for key, inner in (("clusters", "cluster"), ("contexts", "context"), ("users", "user")):
        entries = content.get(key)
        if entries is not None and not isinstance(entries, list):
            raise KubeConfigError(f"{file}: {key} must be a list")
        for number, entry in enumerate(entries or []):
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise KubeConfigError(f"{file}: {key}[{number}].name is required and must be a string")
            if entry.get(inner) is not None and not isinstance(entry[inner], dict):
                raise KubeConfigError(f"{file}: {key}[{number}].{inner} must be a mapping")
    current = content.get("current-context") or ""
    if not isinstance(current, str):
        raise KubeConfigError(f"{file}: current-context must be a string")
    return current
