"""The components as a user installs them: the output of `kubectl apply -k` on a server that authorizes by RBAC.

`Installation` does for an embedded cluster what a node would do: it reads a Deployment like a kubelet (command line,
environment, mounted ConfigMap, the projected token of the pod's ServiceAccount) and starts its container as a process
with no other credentials than the token. The server's audit log has its requests.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

from embedded_kubernetes.auth.audit import FURTHER
from kube_client.transport import Transport
from tests.support.client import Client
from tests.support.kustomize import render
from tests.support.objects import Object, collection
from tests.support.places import CONFIG

from .processes import Process, Served

_TOKENS = "/var/run/secrets/kubernetes.io/serviceaccount"


class Right(NamedTuple):
    """A kind of request in RBAC: `resource` with its subresource, or the path of a URL that is no resource."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}{'.' + self.group if self.group else ''}"


class Installation(Client):
    """The objects of `config` that were applied to a cluster, and the processes started from them.

    Close it at the end.
    """

    patient = True

    def __init__(self, transport: Transport, kubeconfig: Path, folder: Path, *, audit_log: Path | None = None) -> None:
        """`transport` and `kubeconfig` are an administrator's; `audit_log` is the server's file, if it can be read."""
        super().__init__(transport)
        self.kubeconfig = kubeconfig
        self.folder = folder
        self.objects: list[Object] = []
        self.started: list[Process] = []
        self._audit_log = audit_log

    def close(self) -> None:
        for process in self.started:
            process.kill()

    # ---- the administrator

    async def apply(self, name: str) -> None:
        """Apply the objects of `kubectl apply -k config/NAME` by server-side apply."""
        for each in render(CONFIG / name):
            await self.add(each)

    async def add(self, each: Object) -> None:
        await self.ask(
            "PATCH",
            f"{_path(each)}?fieldManager=installer&force=true",
            each,
            content_type="application/apply-patch+yaml",
        )
        self.objects.append(each)

    async def allow_leases(self, account: str, namespace: str) -> None:
        """Allow in another namespace, for all names, what the Role about leases allows."""
        role = json.loads(json.dumps(self.named("Role", f"{account}-leader-election")))
        binding = json.loads(json.dumps(self.named("RoleBinding", f"{account}-leader-election")))
        for rule in role["rules"]:
            rule.pop("resourceNames", None)
        for each in (role, binding):
            each["metadata"]["namespace"] = namespace
            await self.add(each)

    async def remove(self) -> None:
        """Delete everything that was applied, with the content of its namespaces."""
        namespaces = [each for each in self.objects if each["kind"] == "Namespace"]
        for each in (*(each for each in reversed(self.objects) if each not in namespaces), *namespaces):
            await self.call("DELETE", _path(each))

    def named(self, kind: str, name: str) -> Object:
        return next(each for each in self.objects if each["kind"] == kind and each["metadata"]["name"] == name)

    # ---- ServiceAccounts

    async def token(self, namespace: str, account: str, *, seconds: int = 3600) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return str((await self.ask("POST", path, request))["status"]["token"])

    async def kubeconfig_of(self, namespace: str, account: str) -> Path:
        """Return a kubeconfig with a token of the ServiceAccount and no other rights."""
        file = self.folder / f"{account}.token"
        _write(self.folder, {file.name: await self.token(namespace, account)})
        return self._kubeconfig(account, file)

    def _kubeconfig(self, name: str, token_file: Path) -> Path:
        cluster = self._cluster()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "users": [{"name": name, "user": {"tokenFile": str(token_file)}}],
            "contexts": [{"name": name, "context": {"cluster": cluster["name"], "user": name}}],
            "current-context": name,
        }
        _write(self.folder, {f"{name}.kubeconfig": yaml.safe_dump(document)})
        return self.folder / f"{name}.kubeconfig"

    def _cluster(self) -> Object:
        """Return the administrator's current cluster, with the content of files that it names."""
        admins = yaml.safe_load(self.kubeconfig.read_text())
        context = next(each for each in admins["contexts"] if each["name"] == admins["current-context"])
        found: Object = next(each for each in admins["clusters"] if each["name"] == context["context"]["cluster"])
        cluster = found["cluster"]
        authority = cluster.pop("certificate-authority", None)
        if authority is not None:
            data = (self.kubeconfig.parent / authority).read_bytes()
            cluster["certificate-authority-data"] = base64.b64encode(data).decode()
        return found

    # ---- the work of a kubelet

    async def start(self, deployment: str, name: str, *flags: str) -> Served:
        """Start a pod of the Deployment as a process; `flags` are added behind those of its container.

        A node would put the cluster's address into its environment; here a kubeconfig with the mounted token has it.
        """
        found = self.named("Deployment", deployment)
        namespace, pod = found["metadata"]["namespace"], found["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounts = {mount["mountPath"]: self.folder / name / mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for mount in container["volumeMounts"]:
            files = await self._files(volumes[mount["name"]], namespace, pod)
            _write(mounts[mount["mountPath"]], files)
        arguments = [_moved(argument, mounts) for argument in container["args"]]
        kubeconfig = self._kubeconfig(name, mounts[_TOKENS] / "token")
        environment = {each["name"]: namespace if "valueFrom" in each else each["value"] for each in container["env"]}
        process = Served(
            name,
            [*arguments, "--kubeconfig", str(kubeconfig), "--bind-address", "127.0.0.1", *flags],
            folder=self.folder,
            tls="https" in [port["name"] for port in container["ports"]],
            environment=environment,
        )
        self.started.append(process)
        return process

    async def _files(self, volume: Object, namespace: str, pod: Object) -> dict[str, str]:
        """Return the content of a volume by name."""
        files: dict[str, str] = {}
        for source in (volume.get("projected") or {"sources": [volume]})["sources"]:
            if "emptyDir" in source:
                continue
            if "serviceAccountToken" in source:
                wanted = source["serviceAccountToken"]
                account, lives = pod["serviceAccountName"], wanted["expirationSeconds"]
                files[wanted["path"]] = await self.token(namespace, account, seconds=lives)
            elif "downwardAPI" in source:
                for item in source["downwardAPI"]["items"]:
                    assert item["fieldRef"]["fieldPath"] == "metadata.namespace"
                    files[item["path"]] = namespace
            elif source["configMap"]["name"] == "kube-root-ca.crt":
                # A controller creates it in every namespace.
                authority = self._cluster()["cluster"].get("certificate-authority-data", "")
                files["ca.crt"] = base64.b64decode(authority).decode()
            else:
                name = source["configMap"]["name"]
                path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
                files |= (await self.ask("GET", path))["data"]
        return files

    # ---- rights

    def granted(self, account: str) -> set[Right]:
        """Return everything that the applied roles allow a ServiceAccount, regardless of names and namespaces."""
        roles = {(each["kind"], each["metadata"]["name"]): each for each in self.objects}
        found: set[Right] = set()
        for each in self.objects:
            if each["kind"] not in ("ClusterRoleBinding", "RoleBinding"):
                continue
            if account in [subject["name"] for subject in each["subjects"]]:
                found.update(_rights(roles[each["roleRef"]["kind"], each["roleRef"]["name"]]))
        return found

    def asked(self, account: str, namespace: str) -> Iterator[tuple[Right, Object]]:
        """Yield every request that used the ServiceAccount's rights, with its audit event."""
        user = f"system:serviceaccount:{namespace}:{account}"
        assert self._audit_log is not None
        for line in self._audit_log.read_text().splitlines():
            event = json.loads(line)
            if event["user"].get("username") != user:
                continue
            target = event.get("objectRef")
            if target is None:
                yield Right("", event["requestURI"].partition("?")[0], event["verb"]), event
                continue
            parts = (target["resource"], target.get("subresource", ""))
            yield Right(target.get("apiGroup", ""), "/".join(filter(None, parts)), event["verb"]), event
            further = (event.get("annotations") or {}).get(FURTHER, "")
            for text in filter(None, further.split("; ")):
                verb, resource = text.partition(":")[0].split(" ")[:2]
                name, _, group = resource.partition(".")
                yield Right(group, name, verb), event

    def refusals(self, account: str, namespace: str) -> list[str]:
        """Return the requests that RBAC refused."""
        return [
            f"{right} at {event['requestURI']}"
            for right, event in self.asked(account, namespace)
            if event["responseStatus"]["code"] == 403
        ]


def _path(each: Object) -> str:
    return f"{collection(each)}/{each['metadata']['name']}"


def _write(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)


def _moved(argument: str, mounts: Mapping[str, Path]) -> str:
    """Return a path in a container as the path on this machine."""
    for mount, folder in mounts.items():
        argument = argument.replace(mount, str(folder))
    return argument


def _rights(role: Object) -> Iterator[Right]:
    for rule in role["rules"]:
        for verb in rule["verbs"]:
            for group in rule.get("apiGroups", ()):
                for resource in rule["resources"]:
                    yield Right(group, resource, verb)
            for path in rule.get("nonResourceURLs", ()):
                yield Right("", path, verb)
