"""A cycle imports nothing: what numpy loads at first use is loaded before."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
import agent_scheduler.fastpath.scheduler
import numpy as np

before = set(sys.modules)
rows = np.array([1, 2, 2])
np.unique(rows, return_inverse=True)
np.unique(rows)
np.isin(rows, np.array([2]))
np.isin(rows, np.array([2**60, 1]))
print(sorted(set(sys.modules) - before))
"""


def test_what_cycles_use_of_numpy_is_loaded_beforehand() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
