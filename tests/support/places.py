"""Folders of the checkout, so that a test that moves need not know how deep it stands."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
DOCS = ROOT / "docs"
TESTS = ROOT / "tests"
