"""Kubeconfigs: files merged as in client-go, their sections, and positions for errors.

For entries with the same name, and for current-context, the first file takes precedence.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apimachinery.yaml_text import InvalidYaml, load, read
from kube_client.credentials import KubeConfigError


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping in a kubeconfig with its position."""

    where: str
    folder: Path
    values: Mapping[str, Any]

    def text(self, key: str) -> str:
        """Return a string; "" if the key is absent or null. Raises KubeConfigError for another type."""
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise KubeConfigError(f"{self.where}.{key} must be a string, not {type(value).__name__}")
        return value

    def data(self, key: str) -> bytes | None:
        """Return the base64 content of `key`-data. Raises KubeConfigError."""
        text = self.text(f"{key}-data")
        if not text:
            return None
        try:
            return base64.b64decode(text, validate=False)
        except (binascii.Error, ValueError) as error:
            raise KubeConfigError(f"{self.where}.{key}-data is not base64: {error}") from None

    def file(self, key: str) -> Path | None:
        """Return the file that `key` names, relative to the kubeconfig. Raises KubeConfigError if it is missing."""
        text = self.text(key)
        if not text:
            return None
        path = self.folder / text
        if not path.is_file():
            raise KubeConfigError(f"{self.where}.{key}: no such file: {path}")
        return path


class Kubeconfig:
    """Merged files, the first one first. Raises KubeConfigError for an unusable one."""

    def __init__(self, files: Iterable[Path]) -> None:
        #: Empty if no file has one.
        self.current = ""
        self._entries: dict[str, dict[str, Section]] = {key: {} for key in _LISTS}
        for file in files:
            content = _read(file)
            self.current = self.current or content.get("current-context") or ""
            for key, inner in _LISTS.items():
                for entry in content.get(key) or []:
                    name = entry["name"]
                    section = Section(f"{file}: {key}[{name}].{inner}", file.absolute().parent, entry.get(inner) or {})
                    self._entries[key].setdefault(name, section)

    def entry(self, key: str, name: str, *, used_by: str) -> Section:
        """Return the entry `name` of the list `key`. Raises KubeConfigError."""
        entries = self._entries[key]
        if name not in entries:
            names = ", ".join(sorted(entries)) or "none"
            raise KubeConfigError(f"{used_by} names {name!r}, but {key} has: {names}")
        return entries[name]


#: The lists of a kubeconfig, with the key of an entry's content.
_LISTS = {"clusters": "cluster", "contexts": "context", "users": "user"}


def _read(file: Path) -> Mapping[str, Any]:
    """Return the file's content, after checking the shape of every list entry."""
    try:
        content = load(read(file))
    except (OSError, UnicodeDecodeError) as error:
        raise KubeConfigError(f"{file}: cannot be read: {error}") from error
    except InvalidYaml as error:
        raise KubeConfigError(f"{file}: not YAML: {error}") from error
    if not isinstance(content, dict):
        raise KubeConfigError(f"{file}: not a kubeconfig: the file must hold a mapping")
    for key, inner in _LISTS.items():
        entries = content.get(key)
        if entries is not None and not isinstance(entries, list):
            raise KubeConfigError(f"{file}: {key} must be a list")
        for number, entry in enumerate(entries or []):
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise KubeConfigError(f"{file}: {key}[{number}].name is required and must be a string")
            if entry.get(inner) is not None and not isinstance(entry[inner], dict):
                raise KubeConfigError(f"{file}: {key}[{number}].{inner} must be a mapping")
    if not isinstance(content.get("current-context") or "", str):
        raise KubeConfigError(f"{file}: current-context must be a string")
    return content
