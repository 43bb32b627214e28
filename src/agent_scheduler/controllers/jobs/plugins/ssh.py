"""`ssh`: one key for all pods of a Job, by which each gets into the others.

Its Secret is made with a new pair of keys; whoever finds it renews no more than the hosts in it. As what may write
Secrets may do much harm, it is only there where it is switched on.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final, NamedTuple

from agent_scheduler.objects.job import Job, TaskSpec

from ..pods import owner_of
from ..states import tasks_of
from .parts import Body, add_mount, add_volume, all_containers, host, hostname, indices, number

_HOME: Final = "/root/.ssh"
FILES: Final = ("id_rsa", "id_rsa.pub", "authorized_keys", "config")
#: Where sshd listens, if no other port is given.
_PORT: Final = 22
_LAST_PORT: Final = 65535
#: Of the files, where they belong to root.
_MODE: Final = 0o600


class KeyPair(NamedTuple):
    """As OpenSSH writes them."""

    private: str
    public: str


def change(job: Job, task: TaskSpec, index: int, pod: Body, given: dict[str, str]) -> None:
    path, name = given.get("ssh-key-file-path") or _HOME, _secret_name(job)
    secret: Body = {
        "secretName": name,
        "items": [{"key": each, "path": f".ssh/{each}"} for each in FILES],
    }
    if path == _HOME:
        secret["defaultMode"] = _MODE
    add_volume(pod, {"name": name, "secret": secret})
    for container in all_containers(pod):
        add_mount(container, {"name": name, "mountPath": path, "subPath": ".ssh"})


def objects(job: Job, given: dict[str, str]) -> list[Body]:
    """Without keys: `with_keys` adds them where there is no such Secret."""
    port = number(given.get("ssh-port", ""), _PORT)
    lines = ["StrictHostKeyChecking no", "UserKnownHostsFile /dev/null"]
    for task, index in ((each, index) for each in tasks_of(job) for index in indices(each)):
        lines += [
            f"Host {hostname(job, task, index)}",
            f"  HostName {host(job, task, index)}",
            f"  Port {port if 0 < port <= _LAST_PORT else _PORT}",
        ]
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
    """The Secret as it is made first."""
    files = {"id_rsa": keys.private, "id_rsa.pub": keys.public, "authorized_keys": keys.public}
    return {**body, "data": {**body["data"], **{name: _encoded(text) for name, text in files.items()}}}


def _secret_name(job: Job) -> str:
    return f"{job.metadata.name}-ssh"


def _encoded(text: str) -> str:
    return b64encode(text.encode()).decode()
