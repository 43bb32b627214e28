"""The plugin `ssh`: one key pair for all pods of a Job, which lets each log in to the others.

Its Secret is created with a new key pair; later updates change only the hosts. Since write access to Secrets is
dangerous, the plugin exists only if it is enabled.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final, NamedTuple

from agent_scheduler.objects.job import Job, TaskSpec

from ..pods import owner_of
from ..states import tasks_of
from .parts import Body, add_mount, add_volume, all_containers, hosts_of, number

_HOME: Final = "/root/.ssh"
FILES: Final = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")
#: The port of sshd if no other is given.
_PORT: Final = 22
_LAST_PORT: Final = 65535
#: The mode of the files if they are in root's home.
_MODE: Final = 0o600


class KeyPair(NamedTuple):
    """The keys in OpenSSH's format."""

    private: str
    public: str


def change(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    path, name = given.get("ssh-key-file-path") or _HOME, _secret_name(job)
    secret: Body = {"secretName": name, "items": [{"key": each, "path": f".ssh/{each}"} for each in FILES]}
    if path == _HOME:
        secret["defaultMode"] = _MODE
    add_volume(pod, {"name": name, "secret": secret})
    for container in all_containers(pod):
        add_mount(container, {"name": name, "mountPath": path, "subPath": ".ssh"})


def objects(job: Job, given: dict[str, str]) -> list[Body]:
    """Return the Secret without keys; `with_keys` adds them if the Secret does not exist."""
    port = number(given.get("ssh-port", ""), _PORT)
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for name, address in (pair for task in tasks_of(job) for pair in hosts_of(job, task)):
        lines += [f"Host {name}", f"  HostName {address}", f"  Port {port if 0 < port <= _LAST_PORT else _PORT}"]
    return [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": _secret_name(job),
                "namespace": job.metadata.namespace,
                "ownerReferences": [owner_of(job)],
            },
            "type": "Opaque",
            "data": {"config": _encoded("\n".join(lines) + "\n")},
        }
    ]


def with_keys(body: Body, keys: KeyPair) -> Body:
    """Return the Secret to create first."""
    files = {"id_rsa": keys.private, "id_rsa.pub": keys.public, "authorized_keys": keys.public}
    return {**body, "data": {**body["data"], **{name: _encoded(text) for name, text in files.items()}}}


def _secret_name(job: Job) -> str:
    return f"{job.metadata.name}-ssh"


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()
