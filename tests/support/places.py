"""Folders of the checkout, so that tests do not depend on their own depth."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
DOCS = ROOT / "docs"
TESTS = ROOT / "tests"
