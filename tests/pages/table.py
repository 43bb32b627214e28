"""The requirements of the pages' commands, and the commands that cannot run here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.documents import PAGES, Typed, typed
from tests.support.places import ROOT


class Row(NamedTuple):
    """A command that is not run as it is on the page.

    The flags of each are parsed by the program's own parser in tests/project/test_docs_commands.py.
    """

    #: A pattern of the page's path, and one that the command begins with.
    page: str
    command: str
    #: What it needs that is not here.
    needs: str
    #: What is run instead: a replacement for the pattern, or "" for nothing.
    instead: str = ""
    #: A program that `instead` requires.
    program: str = ""

    def matches(self, each: Typed) -> bool:
        page = str(each.page.relative_to(ROOT))
        return re.fullmatch(self.page, page) is not None and re.match(self.command, each.text) is not None

    def script(self, each: Typed) -> str:
        return re.sub(rf"(?s){self.command}", self.instead, each.text, count=1) if self.instead else ""


NOT_HERE: Final = (
    Row(".*", r"make (test|check|verify)\b", "minutes to hours; .ci/run runs it", r"make --dry-run \1 >/dev/null"),
    Row("bench/README.md", r"make bench\b", "hours", "make --dry-run bench"),
    Row("bench/README.md", r"python -m bench --only rates .*", "minutes of two idle cores"),
    Row("bench/README.md", r"(python -m bench.scenarios rates) --runs 1", "minutes", r"\1 --quick"),
    Row("bench/README.md", r"python -m bench --kubeconfig FILE .*", "a second scheduler; minutes"),
    Row("bench/README.md", r"(python -m bench --only basic --kubeconfig FILE .*)", "minutes", r"\1 --quick"),
    Row(
        "docs/sizing.md",
        r"python -m bench.sizing .*",
        "minutes of two idle cores; tests/bench/test_shard_model.py runs it",
    ),
    Row("docs/comparison.md", r"python -m bench --kubeconfig FILE .*", "a second scheduler; minutes"),
    Row(".*", r"agent-scheduler bench packing --trace openb:NODES.csv.*", "Alibaba's traces, and minutes"),
    Row("bench/README.md", r"(agent-scheduler bench packing --gangs)", "a minute of CPU", r"\1 --seeds 42-42"),
    Row(".*", r"docker build .*", "Docker; tests/e2e/test_image.py follows the Dockerfile", "test -f Dockerfile"),
    Row(".*", r"docker push .*", "a registry"),
    Row(
        ".*",
        r"helm install (.*)",
        "an image; tests/e2e/test_chart.py installs it",
        r"helm template \1 >/dev/null",
        "helm",
    ),
    Row(
        "docs/operations.md",
        r"helm upgrade (.*) --reuse-values (.*)",
        "an image and a release of Helm's",
        r"helm template \1 \2 >/dev/null",
        "helm",
    ),
    Row("docs/operations.md", r"helm rollback .*", "a release of Helm's"),
    Row(".*", r"kubectl -n agent-scheduler port-forward (\S+) .*", "containers", r"kubectl -n agent-scheduler get \1"),
    Row("docs/operations.md", r"agent-scheduler top --server https:.*", "containers, which serve HTTPS"),
    Row("packages/.*", r"pip install .*", "a release; tests/e2e/test_packages.py installs the wheels"),
)

#: Commands that need the network, which the others do not have.
INSTALLING: Final = re.compile(r"python3 -m venv |\S*pip install ")
#: Programs that go on until Ctrl-C.
GOING_ON: Final = re.compile(
    r"(?:\.venv/bin/)?(agent-scheduler (?:cluster|controllers|run|webhook)|embedded-kubernetes)\b"
    r"(?!.*--write-config-to)"
)

#: A cluster of the reader's, in which all pods are scheduled.
CLUSTER: Final = """
agent-scheduler cluster --nodes 3 --node-cpu 8 --kubeconfig-out $HOME/kubeconfig >$HOME/cluster.log 2>&1 &
until test -s $HOME/kubeconfig; do sleep 0.05; done
export KUBECONFIG=$HOME/kubeconfig
"""
#: The installed components as processes, because no container runs there; they lead by the leases of the manifests.
CONTROLLERS: Final = """
agent-scheduler controllers --enable job,podgroup,queue,sharding >$HOME/controllers.log 2>&1 &
"""
COMPONENTS: Final = f"""
agent-scheduler run --config $PAGES/scheduler.yaml >$HOME/scheduler.log 2>&1 &
SCHEDULER=$!
{CONTROLLERS}
until agent-scheduler check >/dev/null 2>&1; do sleep 0.1; done
"""
APPLIED: Final = f"{CLUSTER}\nkubectl apply -k config/crd\nkubectl apply -k config/default\n"
INSTALLED: Final = APPLIED + COMPONENTS
#: Renames the objects of a sample.
SAMPLE: Final = 'sample() { sed "s/$2/$3/" config/samples/$1.yaml | kubectl apply -f -; }\n'
QUEUE: Final = """
kubectl apply -f config/samples/queue.yaml
kubectl wait --for=jsonpath='{.status.state}'=Open queue/research --timeout=60s
"""


@dataclass(frozen=True, slots=True)
class Given:
    """The state in which the reader begins with the page, and the meaning of the page's placeholders."""

    #: A script that runs before the first command, and scripts that run before commands that begin with a text.
    first: str = ""
    before: Mapping[str, str] = field(default_factory=dict)
    placeholders: Mapping[str, str] = field(default_factory=dict)


#: In Given.before: the commands above that the page asks to repeat, from the first text to the second.
AGAIN: Final = "AGAIN"

GIVEN: Final[Mapping[str, Given]] = {
    "README.md": Given(),
    "CONTRIBUTING.md": Given(),
    "bench/README.md": Given(INSTALLED, placeholders={"FILE": "$KUBECONFIG"}),
    "docs/batch.md": Given(
        CLUSTER,
        {
            "kubectl get podgroup-v1beta1": f"{COMPONENTS}{SAMPLE}\nkubectl apply -f $HOME/1.yaml\n"
            "sample gang evaluate evaluate\n"
            "kubectl wait --for=jsonpath='{.status.phase}'=Running podgroup/train --timeout=60s"
        },
    ),
    "docs/comparison.md": Given(),
    "docs/console.md": Given(
        APPLIED + "kubectl create namespace monitoring\nkubectl -n monitoring create serviceaccount support"
    ),
    "docs/controllers.md": Given(
        CLUSTER,
        {
            "kubectl get queue": COMPONENTS + QUEUE,
            "agent-scheduler job run": "kubectl apply -f config/samples/stages.yaml\n"
            "until kubectl get job.batch.volcano.sh/train -o yaml | grep -q phase; do sleep 0.1; done",
        },
    ),
    "docs/gates.md": Given(INSTALLED + QUEUE),
    "docs/migration-from-kube-scheduler.md": Given("cp config/samples/scheduler.yaml scheduler.yaml"),
    "docs/migration-from-volcano.md": Given("cp config/samples/volcano.yaml volcano-scheduler.conf"),
    "docs/operations.md": Given(
        INSTALLED
        + QUEUE
        + "kubectl create namespace monitoring\nkubectl -n monitoring create serviceaccount support\n"
        + "kubectl apply -f config/samples/pod.yaml -f config/samples/gang.yaml\n"
        + "kubectl wait --for=jsonpath='{.status.phase}'=Running podgroup/evaluate --timeout=60s",
        {
            "kubectl apply -k config/crd &&": "kubectl -n agent-scheduler set env deployment/agent-scheduler OLD=1",
            "ln -s": "mkdir -p $HOME/.local/bin && export PATH=$HOME/.local/bin:$PATH\n"
            "kubectl config rename-context $(kubectl config current-context) staging",
        },
        {"podgroup/NAMESPACE/NAME": "podgroup/default/evaluate", "NAMESPACE/POD": "default/agent", "PID": "$SCHEDULER"},
    ),
    "docs/packing.md": Given(
        CLUSTER
        + """kubectl create -f - <<<'{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-node-1"}}'"""
    ),
    "docs/quickstart.md": Given(
        before={
            "export REGISTRY": CLUSTER,
            "kubectl -n agent-scheduler rollout status": COMPONENTS,
            "agent-scheduler explain default/too-large --from-cluster": AGAIN,
        }
    ),
    "docs/sharding.md": Given(
        CLUSTER,
        {
            "kubectl -n agent-scheduler edit": CONTROLLERS + "export EDITOR=true",
            "kubectl label nodeshard volcano": "until kubectl get nodeshard volcano 2>/dev/null; do sleep 0.1; done",
            "agent-scheduler shards plan": "cp config/samples/sharding.yaml sharding.yaml",
        },
    ),
    "docs/tools/agent-sandbox.md": Given(INSTALLED + QUEUE + SAMPLE + "sample gated gated-too-large alone"),
    "docs/tools/argo.md": Given(INSTALLED + QUEUE + SAMPLE + "sample gated gated-too-large agents-agent-6"),
    "docs/tools/leaderworkerset.md": Given(INSTALLED + QUEUE + SAMPLE + "sample gang evaluate serve-1-6d5f8c7b9"),
    "docs/tools/ray.md": Given(INSTALLED + QUEUE + SAMPLE + "sample gang evaluate ray-evaluate-pg"),
    "docs/tools/trainer.md": Given(INSTALLED + QUEUE + SAMPLE + "sample gang evaluate finetune"),
    "docs/webhook.md": Given(CLUSTER),
    "packages/apimachinery/README.md": Given(),
    "packages/embedded-kubernetes/README.md": Given(),
    "packages/kube-client/README.md": Given(),
}


def given(page: Path) -> Given:
    """Return what is there on this page: an installed scheduler if the table does not have the page."""
    return GIVEN.get(str(page.relative_to(ROOT)), Given(INSTALLED))


def pages() -> list[Path]:
    """Return the pages that have commands."""
    return [page for page in PAGES if any(typed(page))]


def row_of(each: Typed) -> Row | None:
    return next((row for row in NOT_HERE if row.matches(each)), None)
