"""Keys of a KubeSchedulerConfiguration that are none here: which are read with a warning, and which are refused.

Refused is what would change where pods go if it were left out, or what asks for something that nothing here does.
Read with a warning is what only says how kube-scheduler should go about its work. A value that asks for what happens
anyway is read in silence, so that a file which kube-scheduler wrote with all its defaults says little.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from agent_scheduler.config.codec import ForeignKey
from agent_scheduler.config.schema import (
    ClientConnection,
    Configuration,
    LeaderElection,
    Logging,
    ProfileConfig,
)

_EVERY_NODE = "has no effect: every node is looked at for every pod"
_NO_PROFILING = "has no effect: no profiling is served"


def _off(value: object) -> bool:
    return value is False


def _empty(value: object) -> bool:
    return value in ([], "")


def _json(value: object) -> bool:
    return value in ("", "application/json")


FOREIGN: Mapping[type[Struct], Mapping[str, ForeignKey]] = {
    Configuration: {
        "percentageOfNodesToScore": ForeignKey(_EVERY_NODE, harmless=lambda value: value in (0, 100)),
        "parallelism": ForeignKey("has no effect: a cycle looks at all nodes at once; see workerCount"),
        "extenders": ForeignKey(
            "is not supported: there are no scheduler extenders, and without theirs other nodes would be chosen; "
            "see docs/plugins.md",
            refused=True,
            harmless=_empty,
        ),
        "delayCacheUntilActive": ForeignKey(
            "has no effect: a standby keeps its view of the cluster, to take over at once", harmless=_off
        ),
        "enableProfiling": ForeignKey(_NO_PROFILING, harmless=_off),
        "enableContentionProfiling": ForeignKey(_NO_PROFILING, harmless=_off),
        "healthzBindAddress": ForeignKey(
            "is not supported: see serving.bindAddress and serving.port", refused=True, harmless=_empty
        ),
        "metricsBindAddress": ForeignKey(
            "is not supported: see serving.bindAddress and serving.port", refused=True, harmless=_empty
        ),
    },
    ProfileConfig: {
        "percentageOfNodesToScore": ForeignKey(_EVERY_NODE, harmless=lambda value: value in (0, 100)),
    },
    ClientConnection: {
        "contentType": ForeignKey("has no effect: requests are JSON", harmless=_json),
        "acceptContentTypes": ForeignKey("has no effect: answers are JSON", harmless=_json),
    },
    LeaderElection: {
        "resourceLock": ForeignKey(
            "is not supported: the lock is always a Lease; allowed: leases",
            refused=True,
            harmless=lambda value: value in ("", "leases"),
        ),
    },
    Logging: {
        "verbosity": ForeignKey("has no effect: see logging.level"),
        "flushFrequency": ForeignKey("has no effect: every line is written at once"),
    },
}

#: What the headers of kube-scheduler's own files say, with what to write instead.
KUBE_API_GROUP = "kubescheduler.config.k8s.io/"
BRING_YOUR_FILE = (
    "a KubeSchedulerConfiguration is read after three changes: apiVersion: agent-scheduler/v1, "
    "kind: SchedulerConfiguration, and base: default-scheduler in its profiles"
)
