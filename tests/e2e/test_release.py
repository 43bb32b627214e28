"""`make release`: what it refuses, all that it makes, and its wheels in an environment of their own.

It runs in a clone of the commit, with another version and without `make test`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
import venv
import zipfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

from requirements.locks import FOLDER, read
from tests.support.needed import need, tool
from tests.support.places import ROOT

from .processes import PATIENCE

pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]

VERSION = "7.8.9"
URL = "https://host.example/owner/name"
IMAGE = "registry.example/agent-scheduler"
CHANGELOGS = ("CHANGELOG.md", "packages/kube-client/CHANGELOG.md", "packages/embedded-kubernetes/CHANGELOG.md")
OWN = ("agent_scheduler", "agent_scheduler_bench", "apimachinery", "embedded_kubernetes", "kube_client")


class Clone:
    """A clone of the repository with the version in all places and changelogs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        self.git("remote", "set-url", "origin", f"{URL}.git")
        self.python("-m", "release.versions", VERSION)
        for name in CHANGELOGS:
            text = (folder / name).read_text()
            assert "## Unreleased\n" in text
            (folder / name).write_text(text.replace("## Unreleased\n", f"## {VERSION} - 2026-11-29\n", 1))
        self.git("commit", "--quiet", "--all", "-m", "Release")

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@host.example")
        done = subprocess.run(["git", *identity, *words], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": "",
            "GIT_COMMITTER_NAME": "A",
            "GIT_COMMITTER_EMAIL": "a@host.example",
        }
        return subprocess.run(
            [sys.executable, *words], cwd=self.folder, env=environment, check=False, capture_output=True, text=True
        )

    def release(self, version: str = VERSION, *flags: str) -> tuple[int, str, str]:
        done = self.python("-m", "release", version, "--check", "true", *flags)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Clone:
    return Clone(tmp_path_factory.mktemp("release") / "clone")


@pytest.fixture
def changed(clone: Clone) -> Iterator[Clone]:
    """Yield the clone, and undo all changes at the end."""
    before = clone.git("rev-parse", "HEAD")
    yield clone
    clone.git("reset", "--quiet", "--hard", before)
    clone.git("clean", "--quiet", "--force")


def edit(clone: Clone, name: str, old: str, new: str, *, commit: bool = True) -> None:
    path = clone.folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if commit:
        clone.git("commit", "--quiet", "--all", "-m", "Change")


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3rc1", "01.2.3", "../1.2.3"])
def test_a_version_of_another_form_is_refused(clone: Clone, version: str) -> None:
    told = f"release: found the version {version!r}; allowed: X.Y.Z, three numbers (make release VERSION=X.Y.Z)\n"
    assert clone.release(version) == (2, "", told)


def test_changes_that_no_commit_has_are_refused(changed: Clone) -> None:
    edit(changed, "README.md", "# agent", "# the agent", commit=False)
    (changed.folder / "new.py").touch()
    told = "release: the working tree has changes that no commit has: README.md, new.py\n"
    assert changed.release() == (2, "", told)


def test_a_tag_that_exists_is_refused(changed: Clone) -> None:
    changed.git("tag", f"v{VERSION}")
    try:
        assert changed.release() == (2, "", f"release: the tag v{VERSION} exists\n")
    finally:
        changed.git("tag", "--delete", f"v{VERSION}")


@pytest.mark.parametrize(
    ("name", "old"),
    [
        ("bench/src/bench/__init__.py", f'__version__ = "{VERSION}"'),
        ("packages/kube-client/pyproject.toml", f"apimachinery=={VERSION}"),
        ("config/webhook/kustomization.yaml", f"newTag: {VERSION}"),
    ],
)
def test_another_version_anywhere_is_refused(changed: Clone, name: str, old: str) -> None:
    edit(changed, name, old, old.replace(VERSION, "7.8.8"))
    code, out, err = changed.release()
    assert (code, out) == (2, "")
    told = f"release: not all have the version {VERSION}: {name}:N has 7.8.8; run: make version VERSION={VERSION}\n"
    assert re.sub(r":\d+ has", ":N has", err) == told


@pytest.mark.parametrize("name", CHANGELOGS)
@pytest.mark.parametrize("heading", ["## Unreleased\n", f"## {VERSION}\n", f"## {VERSION} - 2026-11-29\n\n## 0.0.1\n"])
def test_a_changelog_without_an_entry_of_the_version_is_refused(changed: Clone, name: str, heading: str) -> None:
    edit(changed, name, f"## {VERSION} - 2026-11-29\n", heading)
    told = f"release: {name} has no entry `## {VERSION} - YYYY-MM-DD` with text\n"
    assert changed.release() == (2, "", told)


def test_a_failed_check_is_refused_and_so_is_one_that_changes_files(changed: Clone) -> None:
    assert changed.release(VERSION, "--check", "false") == (2, "", "release: `false` ended with 1\n")
    told = "release: the checks have changed files: made\n"
    assert changed.release(VERSION, "--check", "touch made") == (2, "", told)


def test_a_folder_with_other_files_is_not_replaced(clone: Clone, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    told = "exists and has no SHA256SUMS of a release; remove it, or give another --output\n"
    for output in (tmp_path, tmp_path / "mine"):
        assert clone.release(VERSION, "--output", str(output)) == (2, "", f"release: {output} {told}")
    assert (tmp_path / "mine").exists()


def test_a_dry_run_makes_nothing(clone: Clone) -> None:
    code, out, err = clone.release(VERSION, "--dry-run")
    told = f"release: {VERSION} could be made, with the tag v{VERSION}; nothing was written\n"
    assert (code, out, err) == (0, told, "")
    assert not (clone.folder / "dist").exists() and clone.git("tag", "--list", f"v{VERSION}") == ""


# ---- what it makes


@pytest.fixture(scope="module")
def dist(clone: Clone) -> Path:
    """Return the folder of a release."""
    code, out, err = clone.release(VERSION, "--image", IMAGE)
    assert (code, err) == (0, "")
    assert out.endswith(
        f"release: the tag v{VERSION} is set in this clone only; push it with: git push origin v{VERSION}\n"
    )
    if not list((clone.folder / "dist").glob("*-image.tar")):
        assert "release: the image was skipped: no docker or podman with a running engine is here" in out
    return clone.folder / "dist"


def test_the_folder_has_everything_with_its_sum(dist: Path) -> None:
    names = {each.name for each in dist.iterdir() if not each.name.endswith("-image.tar")}
    rest = {"crd.yaml", "default.yaml", "controllers.yaml", "webhook.yaml", "gate-policy.yaml"}
    assert names == {
        *(f"{each}-{VERSION}-py3-none-any.whl" for each in OWN),
        *(f"{each}-{VERSION}.tar.gz" for each in OWN),
        *(f"agent-scheduler-{VERSION}-{each}" for each in rest),
        f"agent-scheduler-{VERSION}.tgz",
        f"agent-scheduler-{VERSION}.cdx.json",
        f"agent-scheduler-docs-{VERSION}.tar.gz",
        "SHA256SUMS",
    }
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        total, name = line.split("  ")
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == total
    assert (
        json.loads((dist / f"agent-scheduler-{VERSION}.cdx.json").read_text())["metadata"]["component"]["version"]
        == VERSION
    )


def test_the_tag_has_the_entry_of_the_changelog(dist: Path, clone: Clone) -> None:
    assert clone.git("rev-parse", f"v{VERSION}^{{commit}}") == clone.git("rev-parse", "HEAD")
    subject, _, body = clone.git("for-each-ref", "--format=%(contents)", f"refs/tags/v{VERSION}").partition("\n\n")
    assert subject == f"agent-scheduler {VERSION}" and body.startswith("### Added\n")


def test_the_same_commit_gives_the_same_bytes(dist: Path, clone: Clone, tmp_path: Path) -> None:
    clone.git("tag", "--delete", f"v{VERSION}")
    code, _, err = clone.release(VERSION, "--image", IMAGE, "--output", str(tmp_path / "again"))
    assert (code, err) == (0, "")

    def lines(folder: Path) -> list[str]:
        return [line for line in (folder / "SHA256SUMS").read_text().splitlines() if not line.endswith("-image.tar")]

    assert lines(tmp_path / "again") == lines(dist)


@pytest.mark.parametrize("name", OWN)
def test_wheels_say_whose_they_are_and_link_to_the_tag(dist: Path, name: str) -> None:
    with zipfile.ZipFile(dist / f"{name}-{VERSION}-py3-none-any.whl") as wheel:
        about = f"{name}-{VERSION}.dist-info"
        metadata = Parser().parsestr(wheel.read(f"{about}/METADATA").decode())
        assert f"{about}/licenses/LICENSE" in wheel.namelist()
        assert any(each.endswith("/py.typed") for each in wheel.namelist())
    assert metadata["Version"] == VERSION and metadata["Description-Content-Type"] == "text/markdown"
    urls = dict(each.split(", ") for each in metadata.get_all("Project-URL") or [])
    assert urls["Documentation"].startswith(f"{URL}/blob/v{VERSION}/") and urls["Homepage"] == URL
    description = metadata.get_payload()
    assert isinstance(description, str) and description.startswith("# ")
    if name == "agent_scheduler":
        pictures = f"{URL}/raw/v{VERSION}/docs/images"
        assert f"]({pictures}/session.svg)" in description
        assert f'<img src="{pictures}/console-50.png"' in description
        assert f'srcset="{pictures}/console-50-dark.png"' in description


def test_the_chart_and_the_manifests_name_the_image_of_the_version(dist: Path) -> None:
    packed = str(dist / f"agent-scheduler-{VERSION}.tgz")
    done = subprocess.run(
        [tool("helm"), "template", "it", packed, "--set=monitoring.enabled=true"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"runbook: {URL}/blob/v{VERSION}/docs/alerts.md#" in done.stdout
    rendered = (dist / f"agent-scheduler-{VERSION}-default.yaml").read_text()
    for text in (done.stdout, rendered):
        kinds = {each["kind"]: each for each in yaml.safe_load_all(text)}
        (container,) = kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
        assert container["image"] == f"{IMAGE}:{VERSION}"


def test_the_documentation_is_whole_and_names_its_version(dist: Path) -> None:
    name = f"agent-scheduler-docs-{VERSION}"
    with tarfile.open(dist / f"{name}.tar.gz") as packed:
        names = {*packed.getnames()}
        index = packed.extractfile(f"{name}/docs/README.md")
        assert index is not None
        text = index.read().decode()
    assert f"They are for version {VERSION}" in text
    assert {f"{name}/{each}" for each in ("README.md", "docs/operations.md", "docs/images/console-50.png")} <= names


# ---- installed


@pytest.fixture(scope="module")
def programs(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the programs in an environment of their own; what others publish comes from the registry."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=True)
    constraints = folder / "constraints.txt"
    pins = [
        f"{pin.name}=={pin.version}" + (f" ; {pin.marker}" if pin.marker else "") for pin in read(FOLDER / "dev.lock")
    ]
    constraints.write_text("\n".join(pins))
    words = ("install", "--quiet", "--find-links", dist, "-c", constraints, f"agent-scheduler[cluster,tls]=={VERSION}")
    done = subprocess.run(
        [folder / "venv" / "bin" / "pip", *words], cwd=folder, check=False, capture_output=True, text=True
    )
    need(done.returncode == 0, f"pip gets no packages here: {done.stderr[-300:]}")
    return folder / "venv" / "bin"


def test_installed_wheels_run_and_name_the_pages_of_their_version(programs: Path, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}

    def run(*words: str) -> str:
        done = subprocess.run(
            [programs / words[0], *words[1:]],
            cwd=tmp_path,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        return done.stdout

    assert run("agent-scheduler", "--version") == f"agent-scheduler {VERSION}\n"
    pages = f"Documentation of this version: {URL}/blob/v{VERSION}/docs/README.md"
    for name in ("agent-scheduler", "kubectl-agent_scheduler"):
        assert " ".join(run(name, "--help").split()).endswith(pages)
    assert run("kubectl_complete-agent_scheduler", "to").startswith("top\t")
    file = tmp_path / "kubeconfig"
    words = [programs / "agent-scheduler", "cluster", "--port", "0", "--nodes", "1", "--kubeconfig-out", str(file)]
    cluster = subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE
        while not file.exists() and time.monotonic() < end:
            assert cluster.poll() is None
            time.sleep(0.1)
        assert "Ready" in run("agent-scheduler", "nodes", "--kubeconfig", str(file))
    finally:
        cluster.send_signal(signal.SIGINT)
        cluster.wait(PATIENCE)
