"""The places that state the version of this repository, and a program that changes all of them.

python -m release.versions X.Y.Z
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The folders of the distributions, each after those that it needs.
DISTRIBUTIONS = ("packages/apimachinery", "packages/kube-client", "packages/embedded-kubernetes", ".", "bench")
#: Versions are also those of the chart, so they have no pre-releases, which Python and Helm write differently.
FORM = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")

_VERSION = r"(\d+\.\d+\.\d+)"
_OWN = "agent-scheduler|agent-scheduler-bench|apimachinery|embedded-kubernetes|kube-client"
#: Files by pattern -> what stands before the version.
_PLACES = {
    "src/*/__init__.py": r'^__version__ = "',
    "packages/*/src/*/__init__.py": r'^__version__ = "',
    "bench/src/*/__init__.py": r'^__version__ = "',
    "pyproject.toml": rf'"(?:{_OWN})(?:\[\w+\])?==',
    "packages/*/pyproject.toml": rf'"(?:{_OWN})(?:\[\w+\])?==',
    "bench/pyproject.toml": rf'"(?:{_OWN})(?:\[\w+\])?==',
    "config/*/kustomization.yaml": r"^    newTag: ",
    "config/helm/agent-scheduler/Chart.yaml": r"^(?:version|appVersion): ",
    "Dockerfile": r"-t agent-scheduler:",
    "docs/README.md": r"(?:They are for version |`v|agent-scheduler-docs-)",
    "docs/operations.md": r"dist/agent_scheduler-",
    "docs/quickstart.md": r"/agent-scheduler:",
}


def found(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield each place, as FILE:LINE, and the version there."""
    for file, text in _files(root):
        for match in _pattern(root, file).finditer(text):
            yield f"{file.relative_to(root)}:{text.count(chr(10), 0, match.start()) + 1}", match.group(2)


def write(version: str, root: Path = ROOT) -> None:
    for file, text in _files(root):
        file.write_text(_pattern(root, file).sub(rf"\g<1>{version}", text))


def _files(root: Path) -> Iterator[tuple[Path, str]]:
    for pattern in _PLACES:
        for file in sorted(root.glob(pattern)):
            yield file, file.read_text()


def _pattern(root: Path, file: Path) -> re.Pattern[str]:
    before = next(each for pattern, each in _PLACES.items() if file in root.glob(pattern))
    return re.compile(f"({before}){_VERSION}", re.MULTILINE)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.versions", description=__doc__.split("\n")[0])
    parser.add_argument("version", metavar="X.Y.Z", help="the new version")
    version: str = parser.parse_args(arguments).version
    if not FORM.fullmatch(version):
        parser.error(f"found {version!r}; allowed: X.Y.Z, three numbers")
    write(version)
    # The chart has the version, too, and is compared with what this program makes.
    subprocess.run([sys.executable, str(ROOT / "config" / "helm" / "make.py")], check=True)
    print(f"{len(list(found()))} places have the version {version} now; enter it into CHANGELOG.md, and commit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
