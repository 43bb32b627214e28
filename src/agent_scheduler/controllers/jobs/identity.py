"""The owner of an object, and the order of its versions. Pure."""

from __future__ import annotations

from agent_scheduler.objects.job import JOB_VERSION, Job
from agent_scheduler.objects.wire import Metadata, OwnerReference
from kube_client.watch_events import is_older


def job_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def key_of(job: Job) -> str:
    return job_key(job.metadata.namespace, job.metadata.name)


def owner_of(metadata: Metadata) -> OwnerReference | None:
    """Return the reference to the Job that controls an object; None if there is none."""
    for each in metadata.owner_references or ():
        if each.controller and each.kind == "Job" and each.api_version == JOB_VERSION:
            return each
    return None


def owner_key(metadata: Metadata) -> str:
    """Return the key of the controlling Job; empty if there is none."""
    owner = owner_of(metadata)
    return "" if owner is None else job_key(metadata.namespace, owner.name)


def is_known(found: Metadata, known: Metadata) -> bool:
    """Return whether this version of the same object or a later one is known, such as one that was written here."""
    if found.resource_version == known.resource_version:
        return True
    return known.uid == found.uid and is_older(found.resource_version, known.resource_version)
