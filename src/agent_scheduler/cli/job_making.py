"""Creates Jobs from flags or a file, and carries out the other writes of `agent-scheduler job`."""

from __future__ import annotations

import argparse
import json
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from agent_scheduler.objects.batch import COMMAND_VERSION, DEFAULT_QUEUE, commands
from agent_scheduler.objects.job import JOB_VERSION, Job, job_path
from agent_scheduler.objects.job import jobs as jobs_of
from apimachinery import yaml_text
from apimachinery.quantity import QuantityError, parse
from apimachinery.validation.names import label, subdomain
from kube_client.create import create_once, delete_once
from kube_client.errors import FailureClass
from kube_client.transport import Transport, segment

from .listing import ReadError, not_installed

#: Attempts to create an object.
_ATTEMPTS: Final = 3
_REQUESTS: Final = "cpu=1000m,memory=100Mi"
#: Flags that describe a job, with their defaults: vcctl's, except for the limits.
_USUAL: Final[Mapping[str, Any]] = {
    "image": "busybox",
    "replicas": 1,
    "min": 1,
    "requests": _REQUESTS,
    "limits": None,
    "scheduler": "volcano",
    "queue": DEFAULT_QUEUE,
}
#: A label of the pods, as set by vcctl.
_JOB_NAME: Final = "job.volcano.sh"


class NoJob(Exception):
    """The arguments do not describe a job. The message names the place and what is allowed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-N", "--name", metavar="JOB", default="", help="the job's name; replaces the name in a file")
    parser.add_argument(
        "-f", "--filename", metavar="FILE", help="a file with the job in YAML or JSON; - is standard input"
    )
    flags = parser.add_argument_group("a job of one task, without --filename")
    flags.add_argument("-i", "--image", help=f"the container image (default: {_USUAL['image']})")
    flags.add_argument("-r", "--replicas", type=int, metavar="N", help="the number of pods (default: 1)")
    flags.add_argument(
        "-m", "--min", type=int, metavar="N", help="the number of pods that must run at the same time (default: 1)"
    )
    flags.add_argument(
        "-R", "--requests", metavar="NAME=AMOUNT,...", help=f"the requests of each pod (default: {_REQUESTS})"
    )
    flags.add_argument(
        "-L", "--limits", metavar="NAME=AMOUNT,...", help="the limits of each pod (default: its requests)"
    )
    flags.add_argument(
        "-S", "--scheduler", metavar="NAME", help=f"the scheduler's name (default: {_USUAL['scheduler']})"
    )
    flags.add_argument("-q", "--queue", metavar="NAME", help=f"the queue (default: {DEFAULT_QUEUE})")


def named(name: str) -> str:
    """Check that `name` is a valid object name. Raises NoJob."""
    if problem := subdomain(name):
        raise NoJob(f"job {name!r}: {problem[0]}")
    return name


# ---- jobs


def job_of(args: argparse.Namespace) -> dict[str, Any]:
    """Return the Job that the command line describes. Raises NoJob."""
    if args.filename is not None:
        of_no_use = [f"--{name}" for name in _USUAL if getattr(args, name) is not None]
        if of_no_use:
            raise NoJob(f"{', '.join(of_no_use)}: not allowed with --filename, which has the whole job")
        body = _of_file(args.filename)
        metadata = body["metadata"]
        base = metadata.pop("generateName", "")
        metadata["name"] = args.name or metadata.get("name") or (base and base + secrets.token_hex(3))
        if not metadata["name"]:
            raise NoJob(f"{args.filename}: metadata.name is missing; give one with --name")
        named(metadata["name"])
        return body
    if not args.name:
        raise NoJob("--name is missing; allowed: --name JOB, or --filename FILE")
    if problem := label(args.name):
        # The name is used for the container, too.
        raise NoJob(f"--name {args.name!r}: {problem[0]}")
    return _of_flags(args)


def put_into(body: dict[str, Any], given: str, usual: str) -> str:
    """Set a job's namespace and return it: its own, or the `given` or the usual one. Raises NoJob."""
    own = str(body["metadata"].get("namespace") or "")
    if own and given and own != given:
        raise NoJob(f"--namespace {given}: the job's namespace is {own}; remove one of the two")
    namespace = own or usual
    body["metadata"]["namespace"] = namespace
    return namespace


def _of_file(file: str) -> dict[str, Any]:
    try:
        text = yaml_text.read(sys.stdin.buffer if file == "-" else Path(file))
        documents = [each for each in yaml_text.load_all(text) if each is not None]
    except OSError as error:
        raise NoJob(f"--filename {file}: {error.strerror}") from None
    except (UnicodeDecodeError, yaml_text.InvalidYaml) as error:
        raise NoJob(f"--filename {file}: not valid YAML: {error}") from None
    if len(documents) != 1:
        raise NoJob(f"--filename {file}: found {len(documents)} objects; allowed: one Job")
    (body,) = documents
    found = (body.get("apiVersion"), body.get("kind")) if isinstance(body, dict) else (None, None)
    if found != (JOB_VERSION, "Job"):
        raise NoJob(f"--filename {file}: found {found[1]} of {found[0]}; allowed: kind Job of apiVersion {JOB_VERSION}")
    metadata = body.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise NoJob(f"--filename {file}: metadata is not an object")
    # YAML has time values, which JSON does not have.
    plain: dict[str, Any] = json.loads(json.dumps(body, default=str))
    return plain


def _of_flags(args: argparse.Namespace) -> dict[str, Any]:
    given = {name: usual if getattr(args, name) is None else getattr(args, name) for name, usual in _USUAL.items()}
    if given["replicas"] < 1:
        raise NoJob(f"--replicas {given['replicas']}: allowed: 1 or more")
    if not 0 <= given["min"] <= given["replicas"]:
        raise NoJob(f"--min {given['min']}: allowed: 0 to {given['replicas']}, the number of replicas")
    requests = _resources("--requests", given["requests"])
    limits = requests if given["limits"] is None else _resources("--limits", given["limits"])
    container = {
        "name": args.name,
        "image": given["image"],
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": requests, "limits": limits},
    }
    template = {
        "metadata": {"name": args.name, "labels": {_JOB_NAME: args.name}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    # The webhook sets the task's name and minimum, so they are set here for clusters without it.
    task = {"name": "default0", "replicas": given["replicas"], "minAvailable": given["min"], "template": template}
    return {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "metadata": {"name": args.name},
        "spec": {
            "schedulerName": given["scheduler"],
            "queue": given["queue"],
            "minAvailable": given["min"],
            "tasks": [task],
        },
    }


def _resources(flag: str, text: str) -> dict[str, str]:
    """Parse amounts by resource. Raises NoJob."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, sign, amount = part.partition("=")
        if not sign or not name or name in found:
            raise NoJob(f"{flag} {text}: found {part!r}; allowed: each resource once, as NAME=AMOUNT")
        try:
            parse(amount)
        except QuantityError as error:
            raise NoJob(f"{flag} {text}: {name}: {error}") from None
        found[name] = amount
    return found


# ---- writes


async def make_job(transport: Transport, namespace: str, body: Mapping[str, Any]) -> None:
    """Create the job. Raises ReadError if that is refused or its outcome unknown."""
    name = body["metadata"]["name"]
    await _make(transport, jobs_of(segment(namespace)), name, body, f"job {namespace}/{name}")


async def order(transport: Transport, job: Job, action: str) -> None:
    """Create a Command for the controller of `job`, owned by the job. Raises ReadError."""
    metadata = job.metadata
    reference = {
        "apiVersion": JOB_VERSION,
        "kind": "Job",
        "name": metadata.name,
        "uid": metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    name = f"{metadata.name}-{action.lower()}-{secrets.token_hex(4)}"
    body = {
        "apiVersion": COMMAND_VERSION,
        "kind": "Command",
        "metadata": {"name": name, "namespace": metadata.namespace, "ownerReferences": [reference]},
        "action": action,
        "target": reference,
    }
    where = commands(segment(metadata.namespace))
    await _make(transport, where, name, body, f"Command {action} for job {metadata.namespace}/{metadata.name}")


async def delete_job(transport: Transport, job: Job) -> None:
    """Delete the job if it still has the same UID. Raises ReadError if that is refused or its outcome unknown."""
    metadata = job.metadata
    path = job_path(segment(metadata.namespace), segment(metadata.name))
    failure = await delete_once(transport, path, metadata.uid, wanted=lambda: True)
    if failure is not None:
        raise ReadError(f"job {metadata.namespace}/{metadata.name} may not have been deleted: {failure}")


async def _make(transport: Transport, collection: str, name: str, body: Mapping[str, Any], what: str) -> None:
    made = await create_once(
        transport, collection, segment(name), json.dumps(body).encode(), wanted=lambda: True, attempts=_ATTEMPTS
    )
    failure = made.failure
    if failure is None:
        return
    if failure.kind is FailureClass.CONFLICT:
        raise ReadError(f"{what} already exists; delete it first, or use another --name")
    doubt = " (it may have been created anyway)" if made.is_open else ""
    raise ReadError(not_installed(collection, failure) or f"{what} cannot be created: {failure}{doubt}")
