"""Finds the manifests that users apply: in a wheel those that are needed here, in a checkout those of `config`."""

from __future__ import annotations

from pathlib import Path


def manifest_file(name: str) -> Path:
    """Return the path of a file of `config/`. Raises FileNotFoundError."""
    places = (Path(__file__).with_name("config"), Path(__file__).resolve().parents[4] / "config")
    for place in places:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(f"{name} is neither in {places[0]} nor in {places[1]}")
