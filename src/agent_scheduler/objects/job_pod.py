"""The parts of a Job's pods that the job controller reads and writes."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from apimachinery.nesting import shallow
from apimachinery.wire import Wire

from .batch import STAGE_GATE
from .wire import Metadata, SchedulingGate

#: Annotations of the pods of a Job; some are labels, too.
TASK_INDEX: Final = "volcano.sh/task-index"
JOB_NAME: Final = "volcano.sh/job-name"
JOB_NAMESPACE: Final = "volcano.sh/job-namespace"
POD_QUEUE_NAME: Final = "volcano.sh/queue-name"
VERSION: Final = "volcano.sh/job-version"
RETRY_COUNT: Final = "volcano.sh/job-retry-count"
TEMPLATE_UID: Final = "volcano.sh/template-uid"
PARTITION_ID: Final = "volcano.sh/partition-id"
#: Marks pods that the controller is about to delete, so that their deletion is not an event.
OUT_OF_SYNC: Final = "volcano.sh/controller-out-of-sync"


#: The limit of digits of a number on a pod; longer ones are ignored.
_DIGITS: Final = 10


class Terminated(Wire, frozen=True):
    exit_code: int = 0


class ContainerState(Wire, frozen=True):
    terminated: Terminated | None = None


class ContainerReport(Wire, frozen=True):
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()


class JobPodStatus(Wire, frozen=True):
    phase: str = ""
    container_statuses: tuple[ContainerReport, ...] | None = None
    init_container_statuses: tuple[ContainerReport, ...] | None = None


class JobPodSpec(Wire, frozen=True):
    scheduling_gates: tuple[SchedulingGate, ...] | None = None


class JobPod(Wire, frozen=True):
    metadata: Metadata
    spec: JobPodSpec = JobPodSpec()
    status: JobPodStatus = JobPodStatus()

    def annotation(self, name: str) -> str:
        return (self.metadata.annotations or {}).get(name, "")

    @property
    def stands_by(self) -> bool:
        """Whether its bind must wait until others of its Job have run."""
        gates = self.spec.scheduling_gates
        return gates is not None and any(gate.name == STAGE_GATE for gate in gates)

    @property
    def is_marked(self) -> bool:
        """Whether the controller is about to delete it, or has begun to."""
        return self.annotation(OUT_OF_SYNC) == "true"

    @property
    def version(self) -> int:
        """The version of its Job when it was created."""
        return self._number(VERSION)

    @property
    def retry_count(self) -> int:
        """The number of restarts of its Job when it was created."""
        return self._number(RETRY_COUNT)

    def _number(self, name: str) -> int:
        text = self.annotation(name)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < _DIGITS else 0


class _JobPodEvent(Wire, frozen=True):
    """A watch event about such a pod, without bookmarks and errors."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: JobPod


_decode = msgspec.json.Decoder(JobPod).decode
_decode_event = msgspec.json.Decoder(_JobPodEvent).decode


def read_job_pod(raw: bytes | memoryview | msgspec.Raw) -> JobPod:
    """Decode a pod, which may be nested too deeply: its Job must not create it again."""
    try:
        return _decode(raw)
    except RecursionError:
        return _decode(shallow(raw))


def read_job_pod_event(line: bytes) -> tuple[str, str, str, JobPod]:
    """Decode a watch event, as `kube_client.watch_events.ReadEvent`."""
    event = _decode_event(line)
    metadata = event.object.metadata
    return event.type, metadata.uid, metadata.resource_version, event.object
