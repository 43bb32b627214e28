"""Checks the locks and the packages that are installed from them.

   python -m requirements.audit [--sbom FILE] [--advisories]

Without the network it checks that every pin has hashes, that run.lock and build.lock repeat pins of dev.lock, that
licenses are allowed, and that a bill of materials, if one is named, agrees with the lock. It prints advisories if the
service can be reached. Only with --advisories is it an error that there are some, or that they cannot be fetched.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any

from . import sbom
from .licences import ALLOWED, expression, is_allowed
from .locks import FOLDER, LockError, Pin, read

#: #: The service that pip-audit queries.
SERVICE = ("api.osv.dev", 443)
#: #: Locks of the released packages and of their build.
SHIPPED = ("run.lock", "build.lock")


def without_hashes(pins: Sequence[Pin]) -> list[str]:
    wrong = [pin for pin in pins if not pin.hashes]
    weak = [(pin, each) for pin in pins for each in pin.hashes if not re.fullmatch(r"sha256:[0-9a-f]{64}", each)]
    return [f"{pin.said} has no hash" for pin in wrong] + [
        f"{pin.said} has the hash {each}; allowed: sha256: and 64 hexadecimal digits" for pin, each in weak
    ]


def unlike(pins: Sequence[Pin], dev: Sequence[Pin]) -> list[str]:
    """Return a finding for each of `pins` that dev.lock has not with the same version and files."""
    there = {(pin.name, pin.version, pin.hashes) for pin in dev}
    return [
        f"{pin.said} is not pinned so in dev.lock; make lock resolves both"
        for pin in pins
        if (pin.name, pin.version, pin.hashes) not in there
    ]


def unlicensed(pins: Sequence[Pin], installed: Mapping[str, Distribution]) -> list[str]:
    """Return a finding for each pin whose license is not allowed; pins for other systems are not checked."""
    found = []
    for pin in pins:
        if pin.name not in installed and not pin.marker:
            found.append(f"{pin.said} is not installed, so its license is unknown")
        elif pin.name in installed and not is_allowed(said := expression(installed[pin.name])):
            found.append(f"{pin.said} has the license {said}; allowed: {', '.join(sorted(ALLOWED))}")
    return found


def untrue(bill: Mapping[str, Any], pins: Sequence[Pin]) -> list[str]:
    """Return the differences between the bill of materials and the lock."""
    listed = {(each["name"], each["version"], _hashes(each)) for each in bill["components"]}
    locked = {(pin.name, pin.version, pin.hashes) for pin in pins}
    missing, more = sorted(locked - listed), sorted(listed - locked)
    return [
        *(f"{name}=={version} is not so in the bill of materials" for name, version, _ in missing),
        *(f"{name}=={version} of the bill of materials is not so in the lock" for name, version, _ in more),
    ]


def _hashes(component: Mapping[str, Any]) -> tuple[str, ...]:
    references = component["externalReferences"]
    return tuple(f"sha256:{hashed['content']}" for each in references for hashed in each["hashes"])


def findings(folder: Path, installed: Mapping[str, Distribution], bill: Path | None) -> list[str]:
    """Return everything that can be found wrong without the network."""
    dev = read(folder / "dev.lock")
    found = without_hashes(dev) + unlicensed(dev, installed)
    for name in SHIPPED:
        pins = read(folder / name)
        found += without_hashes(pins) + unlike(pins, dev)
    if bill is not None:
        found += untrue(json.loads(bill.read_text()), read(folder / "run.lock"))
    return found


def is_reachable(service: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(service, timeout=5):
            return True
    except OSError:
        return False


def yanked(lock: Path) -> list[str]:
    """Return pip's lines about releases that their authors withdrew; raise if the lock cannot be installed at all."""
    options = ["--dry-run", "--ignore-installed", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    asked = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--quiet", "--requirement", str(lock)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    return [line for line in asked.stderr.splitlines() if "yanked" in line]


def advisories(folder: Path, tools: Path) -> int:
    """Print known vulnerabilities by the pip-audit in `tools`; return 0 if there are none."""
    python = tools / "bin" / "python"
    if not python.exists():
        venv.create(tools, with_pip=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pip-audit"]
        subprocess.run(install, check=True)
    worst = 0
    for name in (*SHIPPED, "dev.lock"):
        options = ["--vulnerability-service", "osv", "--disable-pip", "--require-hashes"]
        asked = [python, "-m", "pip_audit", *options, "--requirement", str(folder / name)]
        worst = max(worst, subprocess.run(asked, check=False).returncode)
    return worst


def main(arguments: Sequence[str] | None = None, *, folder: Path = FOLDER, service: tuple[str, int] = SERVICE) -> int:
    parser = argparse.ArgumentParser(prog="python -m requirements.audit", description=__doc__.split("\n")[0])
    parser.add_argument("--advisories", action="store_true", help="fail for advisories, and for not getting any")
    parser.add_argument("--sbom", type=Path, help="a bill of materials to compare with run.lock")
    args = parser.parse_args(arguments)
    try:
        found = findings(folder, sbom.found_installed(), args.sbom)
        if args.advisories and not found:
            found = [line for name in SHIPPED for line in yanked(folder / name)]
    except (LockError, subprocess.CalledProcessError) as error:
        found = [str(error)]
    for line in found:
        print(f"audit: {line}", file=sys.stderr)
    if found:
        return 1
    if not is_reachable(service):
        print(f"audit: no advisories: {service[0]} cannot be reached", file=sys.stderr)
        return int(args.advisories)
    code = advisories(folder, folder.parent / "build" / "audit")
    return code if args.advisories else 0


if __name__ == "__main__":
    sys.exit(main())
