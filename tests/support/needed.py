"""External requirements of tests: recordings beside the checkout, and programs such as kubectl.

Without them, such a test is skipped with the reason. With CI=true it fails, so that success in CI means that all tests
ran.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT

#: Recordings and traces, beside the checkout.
SHARED = ROOT.parent / "shared"
CONFORMANCE = SHARED / "conformance"

#: The exceptions that end a test, or the import of its file, without its requirements.
LACKING = (pytest.skip.Exception, pytest.fail.Exception)


def need(there: object, missing: str) -> None:
    """Continue only if `there` is true; `missing` is the message."""
    if there:
        return
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{missing}; with CI=true no test is skipped for that", pytrace=False)
    pytest.skip(missing)


def recording(name: str, variable: str = "") -> Path:
    """Return the recording `name`, or the file that the environment's `variable` names.

    Raises FileNotFoundError if the file in `variable` does not exist; the recording itself may be missing.
    """
    given = os.environ.get(variable) if variable else None
    if given and not Path(given).is_file():
        raise FileNotFoundError(f"{variable}: there is no file {given}")
    return Path(given) if given else CONFORMANCE / name


def recorded(name: str, variable: str = "") -> list[str]:
    """Return the lines of that file, which the test requires; one that ends in `.gz` is unpacked."""
    path = recording(name, variable)
    need(path.is_file(), f"there is no recording at {path}")
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def recorded_cases(variable: str, *names: str) -> list[dict[str, Any]]:
    """Return the JSON objects, one per line, of the files `names` or of the file in the environment's `variable`.

    The field `recording` of each is the name of its file.
    """
    read = names[:1] if os.environ.get(variable) else names
    return [
        {"recording": recording(name, variable).name, **json.loads(line)}
        for name in read
        for line in recorded(name, variable)
    ]


def kubectl() -> str:
    """Return the path of kubectl, which the test requires."""
    found = shutil.which("kubectl")
    need(found, "there is no kubectl on the PATH")
    assert found is not None
    return found


def kubectls() -> list[str]:
    """Return the oldest, a middle and the newest of the kubectls `kubectl.1.N` that are installed beside kubectl.

    Without such, return kubectl itself.
    """
    program = Path(kubectl()).resolve()
    found = sorted(map(str, program.parent.glob("kubectl.1.[0-9]*")), key=lambda path: int(path.rpartition(".")[2]))
    return sorted({found[0], found[len(found) // 2], found[-1]}) if found else [str(program)]


def tool(name: str) -> Path:
    """Return the program that .ci/tools.py has fetched, or one on the PATH; the test requires it."""
    fetched = ROOT / "build" / "tools" / name
    found = str(fetched) if fetched.exists() else shutil.which(name)
    need(found, f"there is no {name}; python3 .ci/tools.py fetches it")
    assert found is not None
    return Path(found)


def skip_where(reason: str) -> None:
    """Skip the test if there is a `reason`, even in CI.

    It is for requirements that some environments cannot have, such as a kubectl newer than the distribution's.
    """
    if reason:
        pytest.skip(reason)


def ipv6_loopback() -> None:
    """Require an IPv6 loopback, which many containers lack."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return
    except OSError as error:
        skip_where(f"this machine has no IPv6 loopback: {error}")
