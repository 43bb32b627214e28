"""Builds an admission webhook from its settings, runs it, and shuts it down in order.

    start:  port ─> certificate ─> serving; reviews that need queues are answered once these are listed
    end:    SIGTERM or SIGINT ─> not ready, but still answering ─> requests in progress end ─> exit 0

The exit codes are those of `agent-scheduler run`: 0 after a signal, 1 after a failure, 2 for unusable flags, files or
ports. There is no lease: all replicas answer.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

import msgspec

from agent_scheduler import __version__
from agent_scheduler.admission import jobs, podgroups, pods, queues
from agent_scheduler.admission.review import (
    ALLOWED,
    DELETE,
    AdmissionRequest,
    AdmissionResponse,
    Reviewer,
    UnreadableReview,
    read_review,
    refused,
    review,
    write_review,
)
from agent_scheduler.process.base import Process, run_to_end
from agent_scheduler.serving.certificate import ServingCertificate
from agent_scheduler.serving.given_certificates import GivenCertificates
from agent_scheduler.serving.health import Check
from agent_scheduler.serving.http import server_of
from agent_scheduler.serving.sources import NotReady, Sources, UnreadableData
from agent_scheduler.telemetry.set_aside import StepSubject
from agent_scheduler.telemetry.webhook import RESULTS, WebhookMetrics
from agent_scheduler.webhook.configurations import Configurations, configuration_paths
from agent_scheduler.webhook.own_objects import OwnObjects
from agent_scheduler.webhook.picture import Picture
from apimachinery.errors import ConfigurationError
from kube_client.informers import InformerObserver
from kube_client.retry import Timing
from kube_client.transport import Endpoint, Transport

from .webhook_flags import WebhookSettings, read_groups

if TYPE_CHECKING:
    from agent_scheduler.webhook.authority import CertificateBundle

#: Watches have their own connections; the others read and write a Secret and two configurations.
_CONNECTIONS = 4
#: Seconds for a review: the largest `timeoutSeconds` of a webhook's configuration.
_LONGEST_REVIEW: Final = 30.0
#: Seconds between two checks of the file of resource groups.
_LOOK_EVERY: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Path:
    """A path of reviews; `needs_picture` if its reviews need the listed cluster."""

    reviewer: Reviewer
    needs_picture: bool = True


class WebhookProcess(Process):
    """A process that runs admission."""

    metrics: WebhookMetrics

    def __init__(
        self,
        settings: WebhookSettings,
        *,
        endpoint: Endpoint | None = None,
        transport: Transport | None = None,
        timing: Timing | None = None,
        abort: Callable[[int], object] = os._exit,
    ) -> None:
        """Build the process; the other arguments are as for `Process`. Raises KubeConfigError."""
        super().__init__(
            "webhook",
            kubeconfig=settings.kubeconfig,
            endpoint=endpoint,
            transport=transport,
            timing=timing,
            abort=abort,
        )
        self._settings = settings
        self._rules = pods.PodRules(
            schedulers=frozenset(settings.schedulers), gates=settings.gates, groups=settings.groups
        )
        self.metrics = WebhookMetrics(version=__version__)
        self.metrics.families.read_from(self)
        self.certificate = ServingCertificate()
        self._presented = asyncio.Event()
        #: In seconds since 1970; 0 for an external certificate.
        self.certificate_expiry = 0.0
        #: The port of the server; 0 before it listens.
        self.port = 0
        self._picture: Picture | None = None

    async def run(self, *, signals: bool = True) -> int:
        """Serve until stopped. Return the exit code. With `signals`, SIGTERM and SIGINT stop the process."""
        return await run_to_end(self._run, stop=self.stop, at_once=self._overrun, signals=signals, log=self._log)

    async def _run(self) -> None:
        async with AsyncExitStack() as stack:
            self._remember_steps(stack, self._settings.state_directory, "webhook", renew_deadline=_LONGEST_REVIEW)
            transport, _ = self._connect(stack, connections=_CONNECTIONS)
            self._picture = Picture(transport, metrics=self.metrics, timing=self._timing)
            keep = self._certificates(transport, self._picture)
            sources = self.sources()
            self.metrics.serve(sources.reviews)
            self.metrics.config_loaded(self._timing.now().timestamp())
            server = server_of(self._settings.serving, sources, transport, tls=self.certificate.context)
            self.port = server.listen()
            stack.push_async_callback(server.stop)
            async with asyncio.TaskGroup() as tasks:
                service = [tasks.create_task(self._picture.watch()), tasks.create_task(keep())]
                if self._settings.admission_conf:
                    service.append(tasks.create_task(self._follow_groups(self._settings.admission_conf)))
                if await self._has_certificate():
                    await server.serve()
                    self._log.info("serving", port=self.port, api_server=self._endpoint.base_url)
                    await self._stopping.wait()
                    delay = self._settings.shutdown_delay
                    self._log.info("stopping", delay_seconds=delay)
                    server.drain()
                    await self._timing.sleep(delay)
                    await server.stop()
                for task in service:
                    task.cancel()
            self._log.info("stopped")

    # ---- certificates

    def _certificates(
        self, transport: Transport, observer: InformerObserver
    ) -> Callable[[], Coroutine[Any, Any, None]]:
        """Return the task that keeps the certificate current. Raises ServingError for unusable files.

        `observer` receives the state of the watches.
        """
        own, serving = self._settings.certificate, self._settings.serving
        if own is None:
            files = Path(serving.tls_cert_file), Path(serving.tls_private_key_file)
            given = GivenCertificates(*files, present=self._present, timing=self._timing)
            given.begin()
            return given.run
        # Imported here because its library is optional with an external certificate.
        from agent_scheduler.webhook.own_certificates import OwnCertificates

        paths = configuration_paths(mutating=own.mutating, validating=own.validating)
        configurations = Configurations(transport, paths=paths, timing=self._timing)
        certificates = OwnCertificates(
            transport,
            namespace=own.namespace,
            name=own.secret,
            hosts=own.hosts,
            present=self._present_own,
            publish=configurations.publish,
            timing=self._timing,
        )
        written = OwnObjects(
            transport,
            paths=(certificates.path, *paths),
            changed=certificates.changed,
            observer=observer,
            timing=self._timing,
        )

        async def keep() -> None:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(written.watch())
                tasks.create_task(certificates.run())

        return keep

    def _present(self, certificate: bytes, key: bytes) -> None:
        if self.certificate.present(certificate, key):
            self._log.info("certificate presented")
        self._presented.set()

    def _present_own(self, held: CertificateBundle) -> None:
        from agent_scheduler.webhook.authority import expiry

        self._present(held.certificate, held.key)
        self.certificate_expiry = expiry(held)

    async def _has_certificate(self) -> bool:
        """Wait for a certificate; return false if the process stops before."""
        async with asyncio.TaskGroup() as tasks:
            waiting = [tasks.create_task(each.wait()) for each in (self._presented, self._stopping)]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in waiting:
                task.cancel()
        return not self._stopping.is_set()

    # ---- resource groups

    async def _follow_groups(self, file: str) -> None:
        """Apply changes of the file. An invalid file changes nothing."""
        problem = ""
        while True:
            await self._timing.sleep(_LOOK_EVERY)
            try:
                groups = read_groups(file)
            except ConfigurationError as error:
                if str(error) != problem:
                    problem = str(error)
                    self.metrics.config_refused()
                    self._log.error("change refused", problem=problem)
                continue
            if groups != self._rules.groups or problem:
                problem, self._rules = "", replace(self._rules, groups=groups)
                self.metrics.config_applied(self._timing.now().timestamp())
                self._log.info("change applied", file=file, groups=len(groups))

    # ---- reviews

    def _paths(self) -> Mapping[str, _Path]:
        picture, rules, of_jobs = self._picture, self._settings.queues, self._settings.jobs
        assert picture is not None
        return {
            "/pods/mutate": _Path(lambda asked: pods.mutate(asked, self._rules), needs_picture=False),
            "/queues/mutate": _Path(queues.mutate, needs_picture=False),
            "/queues/validate": _Path(lambda asked: queues.validate(asked, picture.queues, rules)),
            "/podgroups/mutate": _Path(lambda asked: podgroups.mutate(asked, picture.namespaces)),
            "/podgroups/validate": _Path(lambda asked: podgroups.validate(asked, picture.queues, picture.labels)),
            "/jobs/mutate": _Path(lambda asked: jobs.mutate(asked, of_jobs), needs_picture=False),
            "/jobs/validate": _Path(lambda asked: jobs.validate(asked, picture.queues, of_jobs, picture.labels)),
        }

    def _reviewing(self, path: str, what: _Path) -> Callable[[bytes], bytes]:
        count, observe = self.metrics.webhook_reviews_total, self.metrics.webhook_review_duration_seconds
        duration = observe.labels(path)
        took = self.metrics.steps.of("review")
        results = {result: count.labels(path, result) for result in RESULTS}
        reviewer, handling = what.reviewer, self.metrics.handling

        def reviewed(body: bytes) -> bytes:
            began, result = perf_counter(), "failed"
            try:
                if what.needs_picture and not self._is_synced:
                    result = "not_ready"
                    raise NotReady("queues and namespaces are not listed yet")
                try:
                    request = read_review(body)
                except UnreadableReview as error:
                    result = "unreadable"
                    raise UnreadableData(str(error)) from None
                subject = _subject(path, request)
                handling.mark_subject(subject)
                why = handling.why_not(subject)
                answer = _unreviewed(request, why) if why else review(reviewer, request)
                written = write_review(request, answer)
                result = "patched" if answer.patch else "allowed" if answer.allowed else "denied"
                return written
            finally:
                results[result].inc()
                seconds = perf_counter() - began
                duration.observe(seconds)
                took(seconds)
                handling.clear()

        return reviewed

    @property
    def _is_synced(self) -> bool:
        return self._picture is not None and self._picture.is_synced

    def sources(self) -> Sources:
        """Return the content of the HTTP server, including reviews."""
        return Sources(
            metrics=self.metrics.exposition,
            configuration=self._shown,
            reviews={path: self._reviewing(path, what) for path, what in self._paths().items()},
            # A stale view does not make the process unready: the API server itself asks, and an old view is better
            # than none.
            ready=(
                Check("sync", lambda: None if self._is_synced else "not synced yet"),
                Check("shutdown", lambda: "shutting down" if self._stopping.is_set() else None),
            ),
        )

    def _shown(self) -> Mapping[str, Any]:
        settings = self._settings
        return {
            "schedulerNames": list(settings.schedulers),
            "schedulingGates": settings.gates,
            "resourceGroups": len(self._rules.groups),
            "queues": msgspec.to_builtins(settings.queues),
            "jobs": msgspec.to_builtins(settings.jobs),
            "certificate": msgspec.to_builtins(settings.certificate or settings.serving.tls_cert_file),
        }


def _subject(path: str, request: AdmissionRequest) -> StepSubject:
    """Return the object of a review. Before its creation it has no UID, so its content identifies it."""
    content = format(crc32(request.object or request.old_object), "x")
    where = request.namespace, request.name, f"{request.operation} {request.namespace}/{request.name} {content}"
    return StepSubject("review", path, *where, content)


def _unreviewed(request: AdmissionRequest, why: str) -> AdmissionResponse:
    """Return the response for an object whose reviews end the process. It may be deleted."""
    return ALLOWED if request.operation == DELETE else refused(why)
