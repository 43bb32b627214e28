"""What some tests need from outside the project: what lies beside the checkout, and programs such as kubectl.

Without it such a test is skipped and says why. With CI=true it fails: there a green run is to mean that all were run.
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

#: What ends a test, or the import of its file, that lacks something.
LACKING = (pytest.skip.Exception, pytest.fail.Exception)


def need(there: object, missing: str) -> None:
    """Go on only if `there` is true; `missing` says what is not."""
    if there:
        return
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(f"{missing}; with CI=true no test is skipped for that", pytrace=False)
    pytest.skip(missing)


def recording(name: str, variable: str = "") -> Path:
    """The file `name` of the recordings, or the one that the environment's `variable` names instead.

    Raises FileNotFoundError for a file that was named and is not there; the other one may be missing.
    """
    given = os.environ.get(variable) if variable else None
    if given and not Path(given).is_file():
        raise FileNotFoundError(f"{variable}: there is no file {given}")
    return Path(given) if given else CONFORMANCE / name


def recorded(name: str, variable: str = "") -> list[str]:
    """The lines of that file, which the test needs; one that ends in `.gz` is unpacked."""
    path = recording(name, variable)
    need(path.is_file(), f"there is no recording at {path}")
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines()


def recorded_cases(variable: str, *names: str) -> list[dict[str, Any]]:
    """The JSON objects, one a line, of the file that the environment's `variable` names, or else of all the files
    `names`; the field `recording` of each is the name of its file."""
    read = names[:1] if os.environ.get(variable) else names
    return [
        {"recording": recording(name, variable).name, **json.loads(line)}
        for name in read
        for line in recorded(name, variable)
    ]


def kubectl() -> str:
    """Where kubectl is, which the test needs."""
    found = shutil.which("kubectl")
    need(found, "there is no kubectl on the PATH")
    assert found is not None
    return found


def tool(name: str) -> Path:
    """What .ci/tools.py has fetched, or a program of the PATH; the test needs it."""
    fetched = ROOT / "build" / "tools" / name
    found = str(fetched) if fetched.exists() else shutil.which(name)
    need(found, f"there is no {name}; python3 .ci/tools.py fetches it")
    assert found is not None
    return Path(found)


def skip_where(reason: str) -> None:
    """Skip the test if there is a `reason`, in CI, too: for what cannot be had everywhere, such as a kubectl that is
    newer than the distribution's."""
    if reason:
        pytest.skip(reason)


def ipv6_loopback() -> None:
    """The test needs one, which many a container has not."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return
    except OSError as error:
        skip_where(f"this machine has no IPv6 loopback: {error}")
