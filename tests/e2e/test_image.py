"""The image: the Dockerfile's own steps are run, and their result is run like the Deployment's container."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from agent_scheduler import __version__
from bench.harness.processes import free_port
from embedded_kubernetes import EmbeddedCluster
from requirements.locks import canonical
from tests.support.needed import need, skip_where
from tests.support.places import ROOT

from .image import Image, build, cannot_enter
from .processes import PATIENCE

#: # The first test builds the image.
pytestmark = [pytest.mark.wide, pytest.mark.timeout(900)]

POD = """
apiVersion: v1
kind: Pod
metadata: {name: pod}
spec: {schedulerName: agent-scheduler, containers: [{name: c, image: nginx}]}
"""
DOWNLOAD = (sys.executable, "-m", "pip", "download", "--quiet", "--require-hashes", "--only-binary", ":all:")
BILL = "/usr/share/doc/agent-scheduler/agent-scheduler.cdx.json"
#: Byte code starts with a magic number and flags: 1 means that a hash follows that is never compared.
UNCHECKED = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little")


@pytest.fixture(scope="module")
def built() -> Iterator[tuple[Image, Image]]:
    """Build the base and the image."""
    # Half a gigabyte of small files, which pytest would keep for three runs.
    with TemporaryDirectory(dir=_in_memory()) as name:
        folder = Path(name)
        skip_where(cannot_enter(folder))
        wheels = folder / "wheels"
        for lock in ("build", "run"):
            words = [*DOWNLOAD, "--dest", str(wheels), "-r", str(ROOT / f"requirements/{lock}.lock")]
            done = subprocess.run(words, check=False, capture_output=True, text=True)
            need(done.returncode == 0, f"pip gets no packages here: {done.stderr[-300:]}")
        yield build(ROOT, folder, wheels)


def _in_memory() -> str | None:
    """Return a folder in memory, if it has room and programs may be run from it."""
    if not os.path.isdir(memory := "/dev/shm"):
        return None
    found = os.statvfs(memory)
    return memory if found.f_bavail * found.f_frsize > 2**31 and not found.f_flag & os.ST_NOEXEC else None


@pytest.fixture(scope="module")
def base(built: tuple[Image, Image]) -> Image:
    return built[0]


@pytest.fixture(scope="module")
def image(built: tuple[Image, Image]) -> Image:
    return built[1]


@pytest.fixture(scope="module")
def added(built: tuple[Image, Image]) -> dict[str, Path]:
    """Return the files that the image has beyond its base."""
    base, image = built
    there = base.files().keys()
    return {name: file for name, file in image.files().items() if name not in there}


def test_it_has_its_libraries_and_nothing_to_build_or_install_with(
    base: Image, image: Image, added: dict[str, Path]
) -> None:
    elsewhere = [name for name in added if not name.startswith("/opt/venv/") and not name.endswith(".pyc")]
    assert elsewhere == [BILL]
    distributions = {
        match[1].lower().replace("_", "-")
        for name in image.files()
        if (match := re.search(r"/([\w.]+)-[^/]+\.dist-info/METADATA$", name))
    }
    assert {"agent-scheduler", "apimachinery", "kube-client", "uvloop"} <= distributions
    assert distributions & {"agent-scheduler-bench", "embedded-kubernetes"} == set()
    developing = set(
        "pip setuptools wheel hatchling uv pytest mypy ruff rich matplotlib".split()  # noqa: SIM905
    )
    assert distributions & developing == set()
    programs = {Path(name).name for name, file in image.files().items() if os.access(file, os.X_OK)}
    assert "agent-scheduler" in programs
    assert [each for each in programs if re.fullmatch(r"(pip|gcc|cc|ld|as|make|uv)[\d.]*", each)] == []
    assert [name for name in base.files() if "/pip/" in name], "the base had one"
    assert [name for name in image.files() if "/ensurepip/" in name or re.search(r"/pip-.*whl$", name)] == []


def test_its_user_owns_nothing_and_can_write_nothing(image: Image) -> None:
    user = int(image.user.partition(":")[0])
    assert user == 65532
    for folder, folders, names in os.walk(image.root):
        for entry in [Path(folder, name) for name in (*folders, *names)]:
            found = entry.lstat()
            assert (found.st_uid, found.st_gid) == (0, 0), entry
            assert stat.S_ISLNK(found.st_mode) or not found.st_mode & 0o002 or entry == image.root / "tmp", entry


def test_it_runs_without_rights_on_a_root_that_is_read_only(image: Image) -> None:
    told = json.loads(image.run(["python", "-c", _WHO]))
    assert told["ids"] == [65532, 65532, 65532, 65532] and told["groups"] in ([], [65532])
    assert told["capabilities"] == 0
    assert told["written"] == []
    assert told["pid"] == 1


_WHO = """
import json, os
written = []
for folder in ("/", "/tmp", "/opt/venv", "/opt/venv/bin", "/root", "/usr/local/bin"):
    try:
        open(folder + "/written", "w").close()
        written.append(folder)
    except OSError:
        pass
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "ids": [*os.getresuid()[:2], *os.getresgid()[:2]], "groups": os.getgroups(), "written": written, "pid": os.getpid(),
    "capabilities": int(status["CapEff"], 16) | int(status["CapPrm"], 16),
}))
"""


def test_byte_code_of_all_is_there_and_stays_valid(image: Image) -> None:
    sources = [(name, file) for name, file in image.files().items() if name.endswith(".py")]
    found = {Path(name).parent.name for name, _ in sources}
    assert {"agent_scheduler", "apimachinery", "asyncio", "kube_client", "numpy"} <= found
    for name, source in sources:
        compiled = Path(importlib.util.cache_from_source(str(source)))
        assert compiled.exists(), name
        content = compiled.read_bytes()
        assert content.startswith(UNCHECKED), name
        assert content[8:16] == importlib.util.source_hash(source.read_bytes()), name


def test_its_bill_of_materials_lists_what_is_installed(image: Image) -> None:
    bill = json.loads((image.root / BILL.lstrip("/")).read_text())
    (site,) = (image.root / "opt/venv/lib").glob("python3*/site-packages")
    installed = {canonical(each.name): each.version for each in distributions(path=[str(site)])}
    assert {installed.pop(each) for each in ("agent-scheduler", "apimachinery", "kube-client")} == {
        bill["metadata"]["component"]["version"]
    }
    assert {each["name"]: each["version"] for each in bill["components"]} == installed


def test_it_says_its_version(image: Image) -> None:
    assert image.run([*image.entrypoint, "--version"]).strip().endswith(__version__)


def test_the_manifest_has_the_port_that_it_exposes(image: Image) -> None:
    deployment = yaml.safe_load((ROOT / "config/default/deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert [image.port] == [port["containerPort"] for port in container["ports"]]


def test_what_it_starts_schedules_a_pod_and_ends_when_it_is_told(image: Image, tmp_path: Path) -> None:
    log = tmp_path / "log"
    access = image.root / "access"
    with EmbeddedCluster(nodes=1) as cluster, log.open("w") as output:
        shutil.copy2(cluster.kubeconfig, access)
        access.chmod(0o644)
        # Another port than the default, on which other programs of this machine may listen.
        process = image.start(
            [*image.entrypoint, *image.command, "--port", str(free_port())],
            environment={"KUBECONFIG": "/access"},
            stdout=output,
            stderr=output,
        )
        try:
            cluster.apply(POD)
            node = ""
            end = time.monotonic() + PATIENCE
            while not node:
                assert process.poll() is None and time.monotonic() < end, log.read_text()
                with urllib.request.urlopen(f"{cluster.url}/api/v1/namespaces/default/pods/pod") as answer:
                    node = json.load(answer)["spec"].get("nodeName", "")
            assert node == "node-00000"
            (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(first), signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()
            access.unlink()
