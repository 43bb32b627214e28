"""The command `embedded-kubernetes`, also as `python -m embedded_kubernetes`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from . import __version__, cluster


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="embedded-kubernetes",
        description="Serve a Kubernetes API with simulated nodes, in one process.",
        allow_abbrev=False,
    )
    made.add_argument("--version", action="version", version=f"embedded-kubernetes {__version__}")
    cluster.add_arguments(made)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGINT or SIGTERM; return the exit code of `cluster.main`, or 130 after Ctrl-C at the start."""
    try:
        return cluster.main(parser().parse_args(argv))
    except KeyboardInterrupt:
        return 130
