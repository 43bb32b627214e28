"""What figures were measured on: without it they say nothing."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path


def machine() -> dict[str, str]:
    """Processor, kernel, and the versions that decide a run's speed, by what they are called."""
    model = ""
    try:
        for text in Path("/proc/cpuinfo").read_text().splitlines():
            if text.startswith("model name"):
                model = text.partition(":")[2].strip()
                break
    except OSError:
        pass
    found = {
        "processor": f"{os.cpu_count()} x {model or platform.machine()}",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
    }
    for name in ("agent-scheduler", "uvloop", "msgspec", "orjson", "aiohttp", "numpy", "httptools"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
