"""The name by which the user calls the program. Imports nothing, because every command loads it."""

from __future__ import annotations

import os
import sys


def program() -> str:
    """Return `agent-scheduler`, or what the user types for the plugin of kubectl, which the name of the file tells."""
    is_plugin = os.path.basename(sys.argv[0]).startswith("kubectl-")
    return "kubectl agent-scheduler" if is_plugin else "agent-scheduler"
