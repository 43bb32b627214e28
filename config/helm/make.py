"""Makes the Helm chart from the kustomizations beside it, which are the one source of both.

   python config/helm/make.py        writes config/helm/agent-scheduler

The objects are those that `kubectl kustomize` prints, with three differences: the namespace is the release's; the
ConfigMap of the scheduler has a fixed name, and the checksum of its content is an annotation of the pods; and settings
that are changed often are values. A test compares the committed chart with the output of this program, and the output
of `helm template` with kustomize.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIG = ROOT / "config"
CHART = CONFIG / "helm" / "agent-scheduler"
sys.path.insert(0, str(ROOT))

from tests.support.kustomize import plainly  # noqa: E402 - of this checkout

Json = dict[str, Any]

NAMESPACE = "agent-scheduler"
#: Folder -> the value that its objects depend on.
PARTS = {
    "default": "scheduler",
    "controllers": "controllers",
    "webhook": "webhook",
    "gate-policy": "gatePolicy",
    "components/network-policy": "networkPolicy",
    "components/priority-and-fairness": "priorityAndFairness",
    "components/monitoring": "monitoring",
}
#: #: Values of Deployments, each named like its container.
DEPLOYED = ("scheduler", "controllers", "webhook")
#: Those that sign their own certificate if the values name no Secret.
OWN_CERTIFICATE = ("scheduler", "controllers")
#: #: Path in the chart -> the file that is copied there; filled while the parts are read.
FILES: dict[str, Path] = {}
HEADER = "{{- /* Made by config/helm/make.py of config/%s; what is changed here is lost. */ -}}\n"


class Template(str):
    """A template's text that replaces a value."""


class Block(str):
    """A template of whole lines that replaces an entry of a mapping or of a list."""


def objects_of(part: str) -> list[Json]:
    """Return the objects of a kustomization without its namespace, which Helm creates."""
    folder = CONFIG / part
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    if kustomization["kind"] == "Component":
        found = [
            each for name in kustomization["resources"] for each in yaml.safe_load_all((folder / name).read_text())
        ]
        found += [_of_files(folder, each) for each in kustomization.get("configMapGenerator", ())]
    else:
        found = plainly(folder)
    return [each for each in found if each and each["kind"] != "Namespace"]


def _of_files(folder: Path, generator: Json) -> Json:
    """Return a ConfigMap of files that the chart contains unchanged."""
    (file,) = generator["files"]
    FILES[f"files/{file}"] = folder / file
    metadata = {name: generator[name] for name in ("name", "namespace")}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {**metadata, "labels": dict(generator["options"]["labels"])},
        "data": {file: Block(f'{file}: |\n{{{{ .Files.Get "files/{file}" | indent 4 }}}}')},
    }


def adapted(value: str, objects: list[Json]) -> list[Json]:
    found = []
    for each in objects:
        each = _walk(each)
        if each["kind"] == "ConfigMap" and value in DEPLOYED:
            each = _config_map(value, each)
        if each["kind"] == "Deployment":
            _deployment(each)
        labels = each["metadata"].setdefault("labels", {})
        labels["helm.sh/chart"] = Template("{{ .Chart.Name }}-{{ .Chart.Version }}")
        labels["app.kubernetes.io/managed-by"] = Template("{{ .Release.Service }}")
        found.append(each)
    return found


def _walk(value: Any, key: str = "") -> Any:
    """Replace the namespace of the kustomizations by that of the release everywhere in a value."""
    if isinstance(value, dict):
        return {name: each if isinstance(each, Block) else _walk(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_walk(each) for each in value]
    if key == "namespace" and value == NAMESPACE:
        return Template("{{ .Release.Namespace }}")
    if key == "serverName":
        return Template(value.replace(f".{NAMESPACE}.", ".{{ .Release.Namespace }}."))
    account = f"system:serviceaccount:{NAMESPACE}:"
    if isinstance(value, str) and account in value:
        return Template(value.replace(account, "system:serviceaccount:{{ .Release.Namespace }}:"))
    if isinstance(value, str) and value == f"--sharding-configmap-namespace={NAMESPACE}":
        return Template("--sharding-configmap-namespace={{ .Release.Namespace }}")
    return value


def _config_map(value: str, each: Json) -> Json:
    (file,) = each["data"]
    name = "agent-scheduler-configuration" if value == "scheduler" else each["metadata"]["name"]
    source = "configuration" if value == "scheduler" else "sharding"
    return {
        **each,
        "metadata": {**each["metadata"], "name": name},
        "data": {file: Block(f"{file}: |\n{{{{ toYaml .Values.{value}.{source} | indent 4 }}}}")},
    }


def _deployment(each: Json) -> None:
    template = each["spec"]["template"]
    pod, (container,) = template["spec"], template["spec"]["containers"]
    value = f".Values.{container['name']}"
    assert container["name"] in DEPLOYED
    each["spec"]["replicas"] = Template(f"{{{{ {value}.replicas }}}}")
    container["image"] = Template('{{ include "agent-scheduler.image" . }}')
    container["imagePullPolicy"] = Template("{{ .Values.image.pullPolicy }}")
    container["resources"] = Block(f"resources:\n{{{{- toYaml {value}.resources | nindent 12 }}}}")
    kinds = '--enable={{ join "," .Values.controllers.enable }}'
    given = "".join(f"            - {kinds if each.startswith('--enable=') else each}\n" for each in container["args"])
    more = f"{{{{- with {value}.extraArgs }}}}\n{{{{- toYaml . | nindent 12 }}}}\n{{{{- end }}}}"
    for volume in pod["volumes"]:
        if volume["name"] == "configuration":
            volume["configMap"]["name"] = "agent-scheduler-configuration"
            template["metadata"]["annotations"] = {
                "checksum/configuration": Template("{{ toYaml .Values.scheduler.configuration | sha256sum }}")
            }
    if container["name"] in OWN_CERTIFICATE:
        more = _certificate(value, container, pod) + more
    container["args"] = Block(f"args:\n{given}{more}")
    for name in ("nodeSelector", "tolerations"):
        pod[name] = Block(
            f"{{{{- with {value}.{name} }}}}\n      {name}:\n{{{{- toYaml . | nindent 8 }}}}\n      {{{{- end }}}}"
        )
    pod["imagePullSecrets"] = Block(
        "{{- with .Values.image.pullSecrets }}\n      imagePullSecrets:\n{{- toYaml . | nindent 8 }}\n      {{- end }}"
    )


def _certificate(value: str, container: Json, pod: Json) -> str:
    """Mount the Secret of a certificate, if the values name one, and return the lines of its arguments."""
    condition, end = f"{{{{- with {value}.certificateSecret }}}}", "{{- end }}"
    container["volumeMounts"].append(
        Block(
            f"{condition}\n        - name: certificate\n          mountPath: /etc/agent-scheduler-tls\n"
            f"          readOnly: true\n        {end}"
        )
    )
    pod["volumes"].append(
        Block(
            f"{condition}\n      - name: certificate\n        secret:\n          secretName: {{{{ . }}}}\n      {end}"
        )
    )
    files = {"--tls-cert-file": "tls.crt", "--tls-private-key-file": "tls.key"}
    flags = "".join(f"            - {flag}=/etc/agent-scheduler-tls/{file}\n" for flag, file in files.items())
    return f"            {condition}\n{flags}            {end}\n            "


def text(objects: list[Json]) -> str:
    """Return the objects as YAML with their templates."""
    places: dict[str, str] = {}
    blocks: dict[str, str] = {}

    def plain(value: Any) -> Any:
        if isinstance(value, Block):
            place = f"BLOCK{len(blocks)}BLOCK"
            blocks[place] = str(value)
            return place
        if isinstance(value, Template):
            place = f"PLACE{len(places)}PLACE"
            places[place] = str(value)
            return place
        if isinstance(value, dict):
            return {key: plain(each) for key, each in value.items()}
        if isinstance(value, list):
            return [plain(each) for each in value]
        # # Braces in other texts, such as messages with templates of Go, are not templates of Helm.
        return value.replace("{{", "{{ `{{` }}") if isinstance(value, str) else value

    lines = []
    for line in yaml.safe_dump_all([plain(each) for each in objects], sort_keys=False, width=10_000).splitlines():
        place = next((each for each in blocks if line.endswith((f": {each}", f"- {each}"))), None)
        if place is not None:
            lines.append(" " * (len(line) - len(line.lstrip())) + blocks[place])
            continue
        for name, template in places.items():
            line = line.replace(name, template) if line.endswith(name) or f"{name}'" in line else line
        lines.append(line)
    return "\n".join(lines) + "\n"


def values() -> Json:
    """Return the default values: those of the kustomizations."""

    def deployed(part: str) -> Json:
        deployment = next(each for each in objects_of(part) if each["kind"] == "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        return {
            "replicas": deployment["spec"]["replicas"],
            "resources": container["resources"],
            "nodeSelector": {},
            "tolerations": [],
            "extraArgs": [],
        }

    def file(part: str, name: str) -> Any:
        return yaml.safe_load((CONFIG / part / name).read_text())

    kinds = ["job", "podgroup", "queue", "sharding"]
    return {
        "image": {
            "repository": "agent-scheduler",
            "tag": "",
            "digest": "",
            "pullPolicy": "IfNotPresent",
            "pullSecrets": [],
        },
        "scheduler": {
            "enabled": True,
            **deployed("default"),
            "certificateSecret": "",
            "configuration": file("default", "configuration.yaml"),
        },
        "controllers": {
            "enabled": False,
            **deployed("controllers"),
            "certificateSecret": "",
            "enable": kinds,
            "sharding": file("controllers", "sharding.yaml"),
        },
        "webhook": {"enabled": False, **deployed("webhook")},
        "gatePolicy": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "priorityAndFairness": {"enabled": False},
        "monitoring": {"enabled": False},
    }


COMMENTS = {
    "image": "tag: that of the chart's appVersion, where it is empty. A digest (sha256:...) comes before a tag.",
    "scheduler": "configuration: docs/configuration.md explains every setting. A change restarts the pods.\n"
    "# certificateSecret: a Secret of the type kubernetes.io/tls for HTTPS, in place of a self-signed certificate.",
    "controllers": "enable: docs/controllers.md. sharding: docs/sharding.md; it is taken without a restart.",
    "webhook": "Needs the kinds in crds/. docs/webhook.md",
    "gatePolicy": "The gate of pods without a webhook: docs/gates.md",
    "networkPolicy": "Lets the scheduler reach DNS and the API server, and the namespace monitoring reach it.",
    "priorityAndFairness": "A share of the API server for the scheduler alone.",
    "monitoring": "What prometheus-operator is to scrape and to alert on, and a dashboard for Grafana's sidecar.",
}


def schema() -> Json:
    """Return the schema of the values, which rejects unknown ones by name."""

    def closed(properties: Json) -> Json:
        return {"type": "object", "additionalProperties": False, "properties": properties}

    deployed: Json = {
        "replicas": {"type": "integer", "minimum": 0},
        "resources": {"type": "object"},
        "nodeSelector": {"type": "object", "additionalProperties": {"type": "string"}},
        "tolerations": {"type": "array", "items": {"type": "object"}},
        "extraArgs": {"type": "array", "items": {"type": "string", "pattern": "^-"}},
    }
    enabled = {"enabled": {"type": "boolean"}}
    secret = {"certificateSecret": {"type": "string"}}
    kind = {"enum": ["job", "podgroup", "queue", "sharding"]}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        **closed(
            {
                "image": closed(
                    {
                        "repository": {"type": "string", "minLength": 1},
                        "tag": {"type": "string"},
                        "digest": {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                        "pullPolicy": {"enum": ["Always", "IfNotPresent", "Never"]},
                        "pullSecrets": {"type": "array", "items": closed({"name": {"type": "string"}})},
                    }
                ),
                "scheduler": closed({**enabled, **deployed, **secret, "configuration": {"type": "object"}}),
                "controllers": closed(
                    {
                        **enabled,
                        **deployed,
                        **secret,
                        "enable": {"type": "array", "items": kind, "minItems": 1, "uniqueItems": True},
                        "sharding": {"type": "object"},
                    }
                ),
                "webhook": closed({**enabled, **deployed}),
                **{
                    name: closed(enabled)
                    for name in ("gatePolicy", "networkPolicy", "priorityAndFairness", "monitoring")
                },
                "global": {"type": "object"},
            }
        ),
    }


HELPERS = """{{- define "agent-scheduler.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}
"""

NOTES = """Pods with spec.schedulerName of one of the profiles are scheduled from now on:

  kubectl -n {{ .Release.Namespace }} get pods
  kubectl -n {{ .Release.Namespace }} get lease agent-scheduler

agent-scheduler explain NAMESPACE/POD --namespace {{ .Release.Namespace }} says why one waits.
"""


def files() -> dict[str, str]:
    """Return path in the chart -> content."""
    version = (ROOT / "src" / "agent_scheduler" / "__init__.py").read_text().split('__version__ = "')[1].split('"')[0]
    chart = {
        "apiVersion": "v2",
        "name": "agent-scheduler",
        "description": "A Kubernetes scheduler for AI-agent workloads, beside the cluster's own",
        "type": "application",
        "version": version,
        "appVersion": version,
        "kubeVersion": ">=1.30.0-0",
    }
    made = {
        "Chart.yaml": yaml.safe_dump(chart, sort_keys=False),
        "values.schema.json": json.dumps(schema(), indent=2) + "\n",
        "values.yaml": "".join(
            f"# {COMMENTS[name]}\n" + yaml.safe_dump({name: value}, sort_keys=False) for name, value in values().items()
        ),
        "templates/_helpers.tpl": HELPERS,
        "templates/NOTES.txt": NOTES,
    }
    for part, value in PARTS.items():
        condition = f".Values.{value}.enabled"
        body = text(adapted(value, objects_of(part)))
        name = part.rpartition("/")[2]
        made[f"templates/{name}.yaml"] = f"{HEADER % part}{{{{- if {condition} }}}}\n{body}{{{{- end }}}}\n"
    made |= {name: file.read_text() for name, file in FILES.items()}
    for file in sorted((CONFIG / "crd").glob("*_*.yaml")):
        made[f"crds/{file.name}"] = file.read_text()
    return made


def main() -> None:
    shutil.rmtree(CHART, ignore_errors=True)
    for name, content in files().items():
        path = CHART / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


if __name__ == "__main__":
    main()
