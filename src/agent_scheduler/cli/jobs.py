"""The command line of `agent-scheduler job`: Volcano's Jobs, as in its `vcctl job`.

Exit codes: 0, or 2 with one line on standard error for wrong usage, or if the cluster cannot be read or refuses a
change.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from agent_scheduler.controllers.jobs.states import ABORT_JOB, ABORTED, ABORTING, ACTIVE, RESTARTING, RESUME_JOB
from agent_scheduler.objects.job import Job
from kube_client.credentials import KubeConfigError
from kube_client.transport import Endpoint, Transport

from . import job_making, job_reading, job_view
from .clusters import add_cluster, endpoint_of
from .listing import ReadError, connected
from .outputs import LISTS, PROGRAMS, TEXTS, add_output, complain, dumped, show
from .program import program

FAILED: Final = 2
#: For each action: the Command, and the phases of Jobs in which it has an effect. A Job without a phase is Pending.
_ORDERS: Final[Mapping[str, tuple[str, frozenset[str]]]] = {
    "suspend": (ABORT_JOB, ACTIVE | {RESTARTING, ""}),
    "resume": (RESUME_JOB, frozenset({ABORTING, ABORTED})),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", required=True, parser_class=argparse.ArgumentParser
    )
    for name, text in (
        ("run", "create a job from flags or a file"),
        ("list", "list jobs with the number of pods in each phase"),
        ("describe", "show a job, its task dependencies, PodGroup, pods and events"),
        ("suspend", "stop a job and delete its pods until it is resumed"),
        ("resume", "restart a suspended job from the beginning"),
        ("delete", "delete a job and everything that was created for it"),
    ):
        action = actions.add_parser(name, help=text, allow_abbrev=False)
        add_cluster(action)
        action.add_argument(
            "-n",
            "--namespace",
            metavar="NAME",
            default="",
            help="the namespace (default: from the kubeconfig's context)",
        )
        if name == "run":
            job_making.add_arguments(action)
        elif name == "list":
            _add_listing(action)
        else:
            action.add_argument("job", nargs="?", metavar="JOB", default="", help="the job's name")
            action.add_argument("-N", "--name", metavar="JOB", default="", help="the job's name, as in vcctl")
        if name in ("list", "describe"):
            add_output(action, LISTS if name == "list" else TEXTS)


def _add_listing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-A", "--all-namespaces", action="store_true", help="list the jobs of all namespaces")
    parser.add_argument("-S", "--scheduler", metavar="NAME", default="", help="list only jobs with this schedulerName")
    parser.add_argument(
        "-l", "--selector", metavar="LABELS", default="", help="list only jobs with these labels, as for kubectl"
    )


def main(args: argparse.Namespace) -> int:
    try:
        if args.action not in ("run", "list"):
            args.job = _job_named(args)
        body = job_making.job_of(args) if args.action == "run" else None
        endpoint = endpoint_of(args)
        namespace = args.namespace or endpoint.namespace
        if body is not None:
            namespace = job_making.put_into(body, args.namespace, namespace)
        show(asyncio.run(_done(args, endpoint, namespace, body)))
    except (KubeConfigError, ReadError, job_making.NoJob) as error:
        _say(args.action, str(error))
        return FAILED
    return 0


def _say(action: str, text: str) -> None:
    complain(f"job {action}", text)


def _job_named(args: argparse.Namespace) -> str:
    if args.job and args.name and args.job != args.name:
        raise job_making.NoJob(f"found {args.job} and --name {args.name}; allowed: one of the two")
    name = str(args.job or args.name)
    if not name:
        raise job_making.NoJob(f"the job's name is missing; allowed: {program()} job {args.action} JOB")
    return job_making.named(name)


async def _done(args: argparse.Namespace, endpoint: Endpoint, namespace: str, body: dict[str, Any] | None) -> str:
    """Carry out the action and return the output. Raises ReadError."""
    async with connected(endpoint) as transport:
        if body is not None:
            if args.filename is not None:
                await job_making.check_templates(transport, namespace, body)
            await job_making.make_job(transport, namespace, body)
            return f"job {namespace}/{body['metadata']['name']} was created\n"
        if args.action == "list":
            return await _list(transport, args, namespace)
        job = await job_reading.job(transport, namespace, args.job)
        if args.action == "describe":
            return await _describe(transport, args, job)
        place = f"job {namespace}/{args.job}"
        if args.action == "delete":
            await job_making.delete_job(transport, job.value)
            return f"{place} was deleted\n"
        action, phases = _ORDERS[args.action]
        phase = job.value.status.state.phase
        if phase not in phases:
            allowed = ", ".join(sorted(phases - {""}))
            raise ReadError(f"{place} is {phase or 'Pending'}; {args.action} is allowed in: {allowed}")
        await job_making.order(transport, job.value, action)
        return f"{place}: requested to {args.action} (Command {action})\n"


async def _list(transport: Transport, args: argparse.Namespace, namespace: str) -> str:
    where = "" if args.all_namespaces else namespace
    found = await job_reading.jobs(transport, where, args.selector, say=partial(_say, "list"))
    jobs = [each for each in found if args.scheduler in ("", each.spec.scheduler_name)]
    if args.output in PROGRAMS:
        return dumped({"jobs": [job_view.plain(each) for each in jobs]}, args.output)
    if not jobs:
        where = "any namespace" if args.all_namespaces else f"namespace {namespace}"
        _say("list", f"there are no matching jobs in {where}")
    return job_view.jobs_table(jobs, now=datetime.now(UTC), wide=args.output == "wide", namespaces=args.all_namespaces)


async def _describe(transport: Transport, args: argparse.Namespace, job: job_reading.DecodedObject[Job]) -> str:
    around = await job_reading.around(transport, job.value)
    for problem in around.problems:
        _say("describe", problem)
    if args.output in PROGRAMS:
        return dumped(job_view.plain_whole(job, around), args.output)
    return job_view.text(job, around, now=datetime.now(UTC))
