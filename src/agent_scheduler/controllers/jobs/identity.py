"""Which Job something belongs to, and which of two versions of an object is the later one. Pure."""

from __future__ import annotations

from agent_scheduler.kube.watch_events import is_older
from agent_scheduler.objects.job import JOB_VERSION, Job
from agent_scheduler.objects.wire import Metadata, OwnerReference


def job_key(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def key_of(job: Job) -> str:
    return job_key(job.metadata.namespace, job.metadata.name)


def owner_of(metadata: Metadata) -> OwnerReference | None:
    """The Job that controls something; None where none does."""
    for each in metadata.owner_references or ():
        if each.controller and each.kind == "Job" and each.api_version == JOB_VERSION:
            return each
    return None


def owner_key(metadata: Metadata) -> str:
    """Its key; empty where there is none."""
    owner = owner_of(metadata)
    return "" if owner is None else job_key(metadata.namespace, owner.name)


def is_known(found: Metadata, known: Metadata) -> bool:
    """Whether this version of the same object, or a later one, is known: what was written is told by the watch, too."""
    if found.resource_version == known.resource_version:
        return True
    return known.uid == found.uid and is_older(found.resource_version, known.resource_version)
