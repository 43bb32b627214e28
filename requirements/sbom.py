"""Writes the software bill of materials: the installed part of run.lock, as CycloneDX in JSON.

   python -m requirements.sbom [--installed] -o FILE

Licenses are read from the packages of the Python that runs this. The same lock and installation give the same file,
byte for byte.
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from collections.abc import Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from .licences import expression, is_allowed
from .locks import FOLDER, LockError, Pin, canonical, read

#: #: The distribution that the bill describes.
PROJECT = "agent-scheduler"
#: #: The distributions of this repository, which are not pinned.
OWN = frozenset({PROJECT, "agent-scheduler-bench", "apimachinery", "embedded-kubernetes", "kube-client"})


def document(pins: Sequence[Pin], installed: dict[str, Distribution], *, version: str = "") -> dict[str, Any]:
    """Return the bill: components in the order of the lock, and which distribution requires which.

    `version` is that of the project, by default the installed one.
    """
    own = installed[PROJECT]
    root = {
        "type": "application",
        "bom-ref": PROJECT,
        "name": PROJECT,
        "version": version or own.version,
        "licenses": [{"expression": expression(own)}],
    }
    components = [_component(pin, installed) for pin in pins]
    requires: dict[str, list[str]] = {PROJECT: [], **{_reference(pin): [] for pin in pins}}
    for pin in pins:
        by: set[str] = set()
        for via in pin.via:
            # Several distributions of this repository may require the same library.
            by |= {PROJECT} if via in OWN else {_reference(each) for each in pins if each.name == canonical(via)}
        for each in by:
            requires[each].append(_reference(pin))
    content: dict[str, Any] = {
        "metadata": {"component": root},
        "components": components,
        "dependencies": [{"ref": ref, "dependsOn": needs} for ref, needs in requires.items()],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{number}", "version": 1}
    return head | content


def of_installation(pins: Sequence[Pin], installed: dict[str, Distribution]) -> list[Pin]:
    """Return the installed pins.

    Raises LockError if lock and installation differ although no marker explains it.
    """
    there = [pin for pin in pins if pin.name in installed and installed[pin.name].version == pin.version]
    names = {pin.name for pin in there}
    for pin in pins:
        if pin.name not in names and (pin.name in installed or not pin.marker):
            has = installed[pin.name].version if pin.name in installed else "none"
            raise LockError(f"{pin.said} is not what is installed, which is {has}")
    if others := sorted(installed.keys() - names - OWN):
        raise LockError(f"installed and in no pin: {', '.join(others)}")
    return there


def _reference(pin: Pin) -> str:
    return f"pkg:pypi/{pin.name}@{pin.version}"


def _component(pin: Pin, installed: dict[str, Distribution]) -> dict[str, Any]:
    distribution = installed.get(pin.name)
    if distribution is None:
        raise LockError(f"{pin.said} is not installed, so its license is unknown")
    hashes = [{"alg": "SHA-256", "content": each.removeprefix("sha256:")} for each in pin.hashes]
    found: dict[str, Any] = {
        "type": "library",
        "bom-ref": _reference(pin),
        "name": pin.name,
        "version": pin.version,
        "purl": _reference(pin),
        "licenses": [_licence(expression(distribution))],
        # # One hash for each file of the release, of which only one is installed.
        "externalReferences": [
            {"type": "distribution", "url": f"https://pypi.org/project/{pin.name}/{pin.version}/", "hashes": hashes}
        ],
    }
    if pin.marker:
        found["properties"] = [{"name": "python:marker", "value": pin.marker}]
    return found


def _licence(said: str) -> dict[str, Any]:
    return {"expression": said} if is_allowed(said) else {"license": {"name": said}}


def found_installed() -> dict[str, Distribution]:
    return {canonical(each.name): each for each in distributions()}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m requirements.sbom", description=__doc__.split("\n")[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    parser.add_argument("--lock", type=Path, default=FOLDER / "run.lock", help="the lock")
    parser.add_argument(
        "--installed", action="store_true", help="only what is installed, which must be what the lock says"
    )
    parser.add_argument("--project-version", default="", help="the project's version (default: the installed one)")
    args = parser.parse_args(arguments)
    installed = found_installed()
    try:
        pins = read(args.lock)
        if args.installed:
            pins = of_installation(pins, installed)
        text = json.dumps(document(pins, installed, version=args.project_version), indent=1) + "\n"
    except LockError as error:
        print(f"sbom: {error}", file=sys.stderr)
        return 1
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
