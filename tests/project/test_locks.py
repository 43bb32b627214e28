"""The checks of the locks, and the errors that they find."""

from __future__ import annotations

import json
import socket
import subprocess
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from requirements import audit, sbom
from requirements.licences import expression, is_allowed
from requirements.locks import FOLDER, LockError, read
from tests.support.needed import tool

A, B = "a" * 64, "b" * 64
OSI = "Classifier: License :: OSI Approved :: "
GPL = "GNU General Public License v3 (GPLv3)"
GOOD = f"""\
one==1.0 \\
    --hash=sha256:{A}
    # via
    #   -c requirements/dev.lock
    #   agent-scheduler (pyproject.toml)
    #   two
two==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:{A} \\
    --hash=sha256:{B}
    # via agent-scheduler (pyproject.toml)
"""


class Installed(Distribution):
    """An installed distribution, only by its metadata."""

    def __init__(self, name: str, version: str, *lines: str) -> None:
        self._text = "\n".join([f"Name: {name}", f"Version: {version}", *lines, "", ""])

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: object) -> Path:
        raise FileNotFoundError(path)


def installed(**licences: str) -> dict[str, Distribution]:
    """Return `one` and `two`, with the MIT license unless another is given."""
    of_ours = {"agent-scheduler": "Apache-2.0", "one": "MIT", "two": "MIT"} | licences
    versions = {"agent-scheduler": "9", "one": "1.0", "two": "2.0"}
    return {name: Installed(name, versions[name], f"License-Expression: {each}") for name, each in of_ours.items()}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    for name in ("dev.lock", "run.lock", "build.lock"):
        (tmp_path / name).write_text(GOOD)
    yield tmp_path


def test_a_lock_is_read_with_markers_hashes_and_who_requires_what(folder: Path) -> None:
    one, two = read(folder / "run.lock")
    assert (one.name, one.version, one.marker, one.hashes) == ("one", "1.0", "", (f"sha256:{A}",))
    assert one.via == ("agent-scheduler", "two")
    assert (two.marker, two.hashes) == ("python_full_version < '3.12'", (f"sha256:{A}", f"sha256:{B}"))
    assert two.via == ("agent-scheduler",)


@pytest.mark.parametrize(
    "line", ["one>=1.0", "https://host/one.whl", "--index-url https://host", "-r other.lock", "one"]
)
def test_a_line_that_pins_nothing_is_an_error(folder: Path, line: str) -> None:
    (folder / "run.lock").write_text(GOOD + line + "\n")
    with pytest.raises(LockError, match=r"run\.lock:11: .* pins nothing; allowed: NAME==VERSION"):
        read(folder / "run.lock")


def test_locks_that_are_as_they_should_be_are_not_complained_of(folder: Path) -> None:
    assert audit.findings(folder, installed(), None) == []


@pytest.mark.parametrize(
    ("lock", "was", "becomes", "said"),
    [
        ("dev.lock", f" \\\n    --hash=sha256:{A}\n    #", "\n    #", "dev.lock:1: one==1.0 has no hash"),
        ("build.lock", f"sha256:{B}", "md5:1234", "build.lock:7: two==2.0 has the hash md5:1234; allowed: "),
        ("run.lock", "one==1.0", "one==1.1", "run.lock:1: one==1.1 is not pinned so in dev.lock"),
        ("run.lock", "one==1.0", "three==1.0", "run.lock:1: three==1.0 is not pinned so in dev.lock"),
        ("build.lock", f"sha256:{B}", f"sha256:{A}", "build.lock:7: two==2.0 is not pinned so in dev.lock"),
    ],
)
def test_a_pin_that_is_wrong_is_named(folder: Path, lock: str, was: str, becomes: str, said: str) -> None:
    changed = GOOD.replace(was, becomes)
    assert changed != GOOD
    (folder / lock).write_text(changed)
    assert said in "\n".join(audit.findings(folder, installed(), None))


def test_a_licence_that_is_not_allowed_is_named(folder: Path) -> None:
    (said,) = audit.findings(folder, installed(one="GPL-3.0-only"), None)
    assert said.startswith("dev.lock:1: one==1.0 has the license GPL-3.0-only; allowed: 0BSD, Apache-2.0")


def test_what_is_not_installed_has_a_licence_that_nobody_knows(folder: Path) -> None:
    there = installed()
    del there["one"], there["two"]  # two is for some Pythons only
    (said,) = audit.findings(folder, there, None)
    assert said == "dev.lock:1: one==1.0 is not installed, so its license is unknown"


@pytest.mark.parametrize(
    ("said", "allowed"),
    [
        ("MIT", True),
        ("GPL-3.0-or-later", False),
        ("MIT OR GPL-2.0-only", True),
        ("MIT AND GPL-2.0-only", False),
        ("MPL-2.0 AND (Apache-2.0 OR MIT)", True),
        ("(GPL-2.0-only OR MIT) AND BSD-3-Clause", True),
        ("(GPL-2.0-only OR AGPL-3.0-only) AND MIT", False),
        ("GPL-2.0-only OR MIT AND AGPL-3.0-only", False),
        ("MIT MIT", False),
        ("(MIT", False),
        ("none", False),
        ("", False),
    ],
)
def test_of_a_licence_each_part_or_one_choice_must_be_allowed(said: str, allowed: bool) -> None:
    assert is_allowed(said) == allowed


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["License-Expression: MIT OR Apache-2.0", "License: other"], "MIT OR Apache-2.0"),
        (["License: Apache 2.0"], "Apache-2.0"),
        (["License: BSD 3-Clause License and its whole text"], "BSD-3-Clause"),
        (["License: Copyright of its author", f"{OSI}BSD License"], "LicenseRef-BSD"),
        ([f"{OSI}MIT License", f"{OSI}{GPL}"], f"MIT AND {GPL}"),
        (["License: GPL"], "GPL"),
        ([], "none"),
    ],
)
def test_a_licence_is_read_from_the_best_that_the_metadata_has(lines: list[str], said: str) -> None:
    assert expression(Installed("one", "1", *lines)) == said


def test_a_bill_of_materials_that_differs_from_the_lock_is_told(folder: Path, tmp_path: Path) -> None:
    bill = sbom.document(read(folder / "run.lock"), installed())
    file = tmp_path / "bill.json"
    file.write_text(json.dumps(bill))
    assert audit.findings(folder, installed(), file) == []
    bill["components"][0]["version"] = "1.1"
    bill["components"][1]["externalReferences"][0]["hashes"].pop()
    file.write_text(json.dumps(bill))
    assert audit.findings(folder, installed(), file) == [
        "one==1.0 is not so in the bill of materials",
        "two==2.0 is not so in the bill of materials",
        "one==1.1 of the bill of materials is not so in the lock",
        "two==2.0 of the bill of materials is not so in the lock",
    ]


def test_an_installation_is_billed_as_it_is_and_must_be_what_the_lock_says(folder: Path) -> None:
    pins = read(folder / "run.lock")
    there = installed()
    assert [pin.name for pin in sbom.of_installation(pins, there)] == ["one", "two"]
    without_two = {name: each for name, each in there.items() if name != "two"}
    assert [pin.name for pin in sbom.of_installation(pins, without_two)] == ["one"]
    with pytest.raises(LockError, match=r"run\.lock:1: one==1\.0 is not what is installed, which is 1\.1"):
        sbom.of_installation(pins, {**there, "one": Installed("one", "1.1")})
    with pytest.raises(LockError, match=r"one==1\.0 is not what is installed, which is none"):
        sbom.of_installation(pins, {name: each for name, each in there.items() if name != "one"})
    with pytest.raises(LockError, match=r"installed and in no pin: pip"):
        sbom.of_installation(pins, {**there, "pip": Installed("pip", "1")})


@pytest.mark.wide
def test_the_bill_of_run_lock_is_valid_cyclonedx_and_the_same_each_time(tmp_path: Path) -> None:
    import jsonschema
    import referencing.jsonschema

    file, again = tmp_path / "one", tmp_path / "again"
    for each in (file, again):
        assert sbom.main(["--output", str(each)]) == 0
    assert file.read_bytes() == again.read_bytes()
    bill = json.loads(file.read_text())
    with zipfile.ZipFile(tool("cyclonedx.zip")) as wheel:
        schemas = {
            name: json.loads(wheel.read(f"cyclonedx/schema/_res/{name}.SNAPSHOT.schema.json"))
            for name in ("bom-1.6", "spdx", "jsf-0.82")
        }
    of_draft_7 = referencing.jsonschema.DRAFT7.create_resource
    registry = referencing.Registry().with_resources((each["$id"], of_draft_7(each)) for each in schemas.values())
    validator = jsonschema.Draft7Validator(schemas["bom-1.6"], registry=registry)
    assert [error.message for error in validator.iter_errors(bill)] == []
    bill["components"][0]["type"] = "book"
    assert [error.validator for error in validator.iter_errors(bill)] == ["enum"]


def test_the_bill_says_who_requires_whom(tmp_path: Path) -> None:
    assert sbom.main(["--output", str(tmp_path / "bill")]) == 0
    bill = json.loads((tmp_path / "bill").read_text())
    needs = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    (aiohttp,) = (ref for ref in needs if ref.startswith("pkg:pypi/aiohttp@"))
    assert aiohttp in needs["agent-scheduler"]
    assert any(ref.startswith("pkg:pypi/yarl@") for ref in needs[aiohttp])


@pytest.fixture
def nowhere() -> Iterator[tuple[str, int]]:
    """Yield an address where no server answers."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        yield taken.getsockname()


def test_without_the_service_the_locks_are_looked_over_and_who_asks_for_advisories_is_told(
    nowhere: tuple[str, int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert audit.main([], service=nowhere) == 0
    assert capsys.readouterr().err == "audit: no advisories: 127.0.0.1 cannot be reached\n"
    # A unit test must not access the index.
    monkeypatch.setattr(audit, "yanked", lambda lock: [])
    assert audit.main(["--advisories"], service=nowhere) == 1


def test_a_release_that_was_yanked_is_a_finding(monkeypatch: pytest.MonkeyPatch, nowhere: tuple[str, int]) -> None:
    def said(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        yanked = "The candidate selected for download or install is a yanked version: 'one' candidate"
        return subprocess.CompletedProcess(command, 0, None, f"WARNING: other\nWARNING: {yanked}\n")

    monkeypatch.setattr(subprocess, "run", said)
    assert [line.rpartition(": ")[2] for line in audit.yanked(FOLDER / "run.lock")] == ["'one' candidate"]
    assert audit.main(["--advisories"], service=nowhere) == 1


@pytest.mark.parametrize(
    ("found", "arguments", "code"), [(0, [], 0), (1, [], 0), (0, ["--advisories"], 0), (1, ["--advisories"], 1)]
)
def test_advisories_fail_who_asked_for_them(
    found: int, arguments: list[str], code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # pip-audit needs its service: a script in place of Python ends as it would.
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexit {found}\n')
    python.chmod(0o755)
    monkeypatch.setattr(audit, "yanked", lambda lock: [])
    asks = audit.advisories
    monkeypatch.setattr(audit, "advisories", lambda folder, tools: asks(folder, tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as service:
        assert audit.main(arguments, service=service.getsockname()) == code
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.rpartition("/")[2] for line in asked] == ["run.lock", "build.lock", "dev.lock"]
    assert all("-m pip_audit" in line and "--require-hashes" in line for line in asked)
