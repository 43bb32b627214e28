"""What a user gives on the command line: parsed flags, and the kubeconfig that they name."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from agent_scheduler.config.flags import add_run_arguments


def run_arguments(*words: str) -> argparse.Namespace:
    """The flags of `agent-scheduler run`."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_run_arguments(parser)
    return parser.parse_args(words)


def kubeconfig(folder: Path, server: str = "https://127.0.0.1:1", **user: str) -> Path:
    """A file whose context `c` is the cluster at `server`; `user`: the user's credentials."""
    file = folder / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "default"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }
    file.write_text(json.dumps(content))
    return file
