"""Every command of the quick start, as a reader types them, one after the other in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.test_console import free_port
from tests.needed import kubectl

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "quickstart.md"


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_its_commands_do_what_they_say(tmp_path: Path) -> None:
    """All but the installation, which the tests have behind them; on ports that are free here."""
    kubectl()
    installation, *commands = blocks()
    assert "pip install" in installation
    server, pages = free_port(), free_port()
    script = "\n".join(commands).replace("8001", str(server)).replace("10251", str(pages))
    script = script.replace("agent-scheduler run ", f"agent-scheduler run --port {pages} ")
    script = script.replace(
        "agent-scheduler controllers ", f"agent-scheduler controllers --port {free_port()} "
    )
    for name in ("config", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    folders = [str(Path(sys.executable).parent), str(Path(kubectl()).parent), os.environ["PATH"]]
    told = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{script}"],
        cwd=tmp_path,
        env={**os.environ, "PATH": ":".join(folders), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    logs = {file.name: file.read_text()[-2000:] for file in tmp_path.glob("*.log")}
    assert told.returncode == 0, (told.stdout[-3000:], told.stderr[-3000:], logs)
    assert "0/10 nodes are available: 10 Insufficient cpu." in told.stdout
    assert "scheduling.volcano.sh/queue-allocation-gate" in told.stdout
    assert re.search(r"^research +Open", told.stdout.replace("├─ ", "").replace("└─ ", ""), re.MULTILINE)
    assert re.search(r"^train +", told.stdout, re.MULTILINE)
    assert "Scheduled " in told.stdout
