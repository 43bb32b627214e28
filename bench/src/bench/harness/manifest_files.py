"""The manifests that users apply: a wheel carries those that are needed here, in a checkout they are where they are
written."""

from __future__ import annotations

from pathlib import Path


def manifest_file(name: str) -> Path:
    """Of `config/`, by its path there. Raises FileNotFoundError."""
    places = (Path(__file__).with_name("config"), Path(__file__).resolve().parents[4] / "config")
    for place in places:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(f"{name} is neither in {places[0]} nor in {places[1]}")
