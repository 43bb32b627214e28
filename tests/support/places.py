"""Folders of the checkout, so that tests do not depend on their own depth."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
DOCS = ROOT / "docs"
TESTS = ROOT / "tests"
#: Folders of the other distributions of this repository.
APIMACHINERY = ROOT / "packages" / "apimachinery"
EMBEDDED = ROOT / "packages" / "embedded-kubernetes"
KUBE_CLIENT = ROOT / "packages" / "kube-client"
BENCH = ROOT / "bench"
#: Where Python finds the packages of all distributions.
SOURCES = tuple(folder / "src" for folder in (ROOT, APIMACHINERY, KUBE_CLIENT, EMBEDDED, BENCH))
