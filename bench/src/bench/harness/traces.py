"""Readers of published traces: Alibaba's OpenB cluster, and arrivals from Azure.

A reader turns one form of file into a `Workload`. A file without a required column, or a row with an invalid value,
raises `TraceError`, which names file, line, column and the expected value.

**OpenB** (`openb:NODES.csv,PODS.csv`). CPU and memory are the trace's. The trace has no pod limit, so nodes get the
kubelet's default, 110. A node with GPUs has its model in the label `GPU_MODEL_LABEL`; `gpu_spec` becomes a required
node affinity for it. A task requests a share of one GPU or whole ones, which is `GPU_MILLI`, 1000 per GPU: the trace's
own numbers. The order of columns does not matter. A pod list may lack `gpu_spec`, `creation_time` and `deletion_time`;
without times, all pods arrive at once and stay.

**Azure LLM inference** (`azure-llm:FILE`). A request is a pod: it arrives at TIMESTAMP and lives for its tokens, at an
assumed 5,000 context tokens and 40 generated tokens per second.

**Azure functions** (`azure-functions:FILE`). An invocation is a pod: it arrives `duration` seconds before
`end_timestamp` and lives for `duration`.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from .specs import GPU_MILLI, GPU_MODEL_LABEL, NodeSpec, PodSpec, Workload

MIB = 1 << 20
CONTEXT_TOKENS_PER_SECOND = 5000.0
GENERATED_TOKENS_PER_SECOND = 40.0

_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d+)?(Z|\+00:00)?")


class TraceError(ValueError):
    """A trace that cannot be read; the text names file, line and column."""


class _Row:
    """One line of a file, whose cells are read by column name and checked."""

    __slots__ = ("_cells", "file", "line")

    def __init__(self, file: Path, line: int, cells: dict[str, str]) -> None:
        self.file = file
        self.line = line
        self._cells = cells

    def error(self, column: str, expected: str) -> TraceError:
        found = self._cells.get(column, "")
        return TraceError(f"{self.file}, line {self.line}, column {column}: expected {expected}, found {found[:80]!r}")

    def text(self, column: str) -> str:
        """Return the cell; empty if the file does not have the column."""
        return self._cells.get(column, "").strip()

    def has(self, column: str) -> bool:
        return column in self._cells

    def name(self, column: str) -> str:
        value = self.text(column)
        if len(value) > 253 or not _OBJECT_NAME.fullmatch(value):
            raise self.error(column, "a name of lower-case letters, digits, '-' and '.', at most 253 long")
        return value

    def label(self, column: str, value: str) -> str:
        if value and not _LABEL_VALUE.fullmatch(value):
            raise self.error(column, "letters, digits, '-', '_' and '.', at most 63 long")
        return value

    def integer(self, column: str, *, least: int = 0, most: int | None = None) -> int:
        value = self.number(column, least=least, most=most)
        if value != int(value):
            raise self.error(column, "a whole number")
        return int(value)

    def number(self, column: str, *, least: float = 0, most: float | None = None) -> float:
        expected = f"a number of at least {least:g}" if most is None else f"a number from {least:g} to {most:g}"
        try:
            value = float(self.text(column))
        except ValueError:
            raise self.error(column, expected) from None
        if not math.isfinite(value) or value < least or (most is not None and value > most):
            raise self.error(column, expected)
        # It must fit an int64 column of the scheduler, in bytes.
        if value > 2**43:
            raise self.error(column, "a number below 2^43")
        return value


def _rows(file: Path, columns: tuple[str, ...]) -> Iterator[_Row]:
    """Yield the rows of a CSV file whose header has at least `columns`; empty lines are skipped."""
    try:
        handle = file.open(encoding="utf-8-sig", newline="")
    except OSError as error:
        raise TraceError(f"{file}: cannot be read: {error.strerror or error}") from None
    with handle:
        reader = csv.reader(handle, strict=True)
        try:
            header = [cell.strip() for cell in next(reader, [])]
            for column in columns:
                if column not in header:
                    found = ", ".join(header) or "nothing"
                    raise TraceError(
                        f"{file}, line 1, column {column}: missing; expected a header with "
                        f"{', '.join(columns)}, found {found[:200]}"
                    )
            if len(set(header)) != len(header):
                twice = next(column for column in header if header.count(column) > 1)
                raise TraceError(f"{file}, line 1, column {twice}: expected once, found twice")
            empty = True
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    at = header[len(cells)] if len(cells) < len(header) else f"number {len(header) + 1}"
                    raise TraceError(
                        f"{file}, line {reader.line_num}, column {at}: expected {len(header)} cells, found {len(cells)}"
                    )
                empty = False
                yield _Row(file, reader.line_num, dict(zip(header, cells, strict=True)))
            if empty:
                raise TraceError(f"{file}, line 2: expected at least one row after the header")
        except csv.Error as error:
            raise TraceError(f"{file}, line {reader.line_num}: not CSV: {error}") from None
        except UnicodeDecodeError as error:
            raise TraceError(f"{file}, near line {reader.line_num + 1}: not UTF-8: {error.reason}") from None


def _once(row: _Row, column: str, seen: dict[str, int]) -> str:
    name = row.name(column)
    if name in seen:
        raise row.error(column, f"a name of its own (line {seen[name]} has it too)")
    seen[name] = row.line
    return name


def read_openb_nodes(file: Path) -> tuple[NodeSpec, ...]:
    """Read the nodes of an OpenB node list. Raises `TraceError`."""
    seen: dict[str, int] = {}
    nodes: list[NodeSpec] = []
    for row in _rows(file, ("sn", "cpu_milli", "memory_mib", "gpu", "model")):
        name = _once(row, "sn", seen)
        gpus = row.integer("gpu", most=1024)
        model = row.label("model", row.text("model"))
        nodes.append(
            NodeSpec(
                name=name,
                cpu_milli=row.integer("cpu_milli", least=1),
                memory=row.integer("memory_mib", least=1) * MIB,
                gpus=gpus,
                extended={GPU_MILLI: 1000 * gpus} if gpus else {},
                labels={GPU_MODEL_LABEL: model} if gpus and model else {},
            )
        )
    return tuple(nodes)


def read_openb_pods(file: Path) -> tuple[PodSpec, ...]:
    """Read the tasks of an OpenB pod list, by creation time. Raises `TraceError`."""
    seen: dict[str, int] = {}
    pods: list[PodSpec] = []
    for row in _rows(file, ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")):
        name = _once(row, "name", seen)
        cpu = row.integer("cpu_milli")
        memory = row.integer("memory_mib") * MIB
        requests = {resource: amount for resource, amount in (("cpu", cpu), ("memory", memory)) if amount}
        gpus = row.integer("num_gpu", most=1024)
        share = row.integer("gpu_milli", least=1 if gpus else 0, most=1000 if gpus else 0)
        if gpus > 1 and share < 1000:
            raise row.error("gpu_milli", f"1000, as num_gpu is {gpus}: a share is of one GPU")
        if gpus:
            requests[GPU_MILLI] = gpus * share
        models = tuple(
            row.label("gpu_spec", model)
            for model in dict.fromkeys(part.strip() for part in row.text("gpu_spec").split("|"))
            if model
        )
        created, life = 0.0, None
        if row.has("creation_time"):
            created = row.number("creation_time")
            if row.text("deletion_time"):
                ended = row.number("deletion_time")
                if ended < created:
                    raise row.error("deletion_time", f"a time not before creation_time, {created:g}")
                life = ended - created
        pods.append(
            PodSpec(
                name=name,
                requests=requests,
                arrival=created,
                life=life,
                affinity={GPU_MODEL_LABEL: models} if models else {},
            )
        )
    return _from_zero(pods)


def _from_zero(pods: list[PodSpec]) -> tuple[PodSpec, ...]:
    pods.sort(key=lambda pod: pod.arrival)
    start = pods[0].arrival
    return tuple(replace(pod, arrival=pod.arrival - start) for pod in pods)


def _timestamp(row: _Row, column: str) -> float:
    match = _TIMESTAMP.fullmatch(row.text(column))
    if match is None:
        raise row.error(column, "a time such as 2023-11-16 18:17:03.9799600")
    try:
        whole = datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise row.error(column, "a time that exists") from None
    return whole + float(match[2] or 0)


def read_azure_llm(file: Path) -> tuple[PodSpec, ...]:
    """Read requests of the Azure LLM inference trace as pods of 250m CPU and 256 MiB. Raises `TraceError`."""
    pods: list[PodSpec] = []
    for row in _rows(file, ("TIMESTAMP", "ContextTokens", "GeneratedTokens")):
        context = row.integer("ContextTokens")
        generated = row.integer("GeneratedTokens")
        pods.append(
            PodSpec(
                name=f"llm-{len(pods):06d}",
                requests={"cpu": 250, "memory": 256 * MIB},
                arrival=_timestamp(row, "TIMESTAMP"),
                life=context / CONTEXT_TOKENS_PER_SECOND + generated / GENERATED_TOKENS_PER_SECOND,
                labels={"app": "llm"},
            )
        )
    return _from_zero(pods)


def read_azure_functions(file: Path) -> tuple[PodSpec, ...]:
    """Read invocations of the Azure Functions trace as pods of 100m CPU and 128 MiB. Raises `TraceError`."""
    pods: list[PodSpec] = []
    for row in _rows(file, ("app", "func", "end_timestamp", "duration")):
        life = row.number("duration")
        ended = row.number("end_timestamp")
        app, function = row.text("app"), row.text("func")
        for column, value in (("app", app), ("func", function)):
            if not value:
                raise row.error(column, "an identifier")
        pods.append(
            PodSpec(
                name=f"function-{len(pods):06d}",
                requests={"cpu": 100, "memory": 128 * MIB},
                arrival=ended - life,
                life=life,
                # The trace's identifiers are hashes that are longer than a label value may be.
                labels={"app": row.label("app", app[:63]), "function": row.label("func", function[:63])},
            )
        )
    return _from_zero(pods)


def _openb(files: list[Path]) -> Workload:
    return Workload(
        name=f"openb {files[1].name}",
        nodes=read_openb_nodes(files[0]),
        pods=read_openb_pods(files[1]),
        notes=(
            f"GPUs are requested as {GPU_MILLI}: a share of one, or whole ones.",
            f"gpu_spec is a required node affinity on {GPU_MODEL_LABEL}.",
        ),
    )


def _azure_llm(files: list[Path]) -> Workload:
    return Workload(
        name=f"azure-llm {files[0].name}",
        pods=read_azure_llm(files[0]),
        notes=(
            f"A request is a pod that lives for its tokens: {CONTEXT_TOKENS_PER_SECOND:g} context and "
            f"{GENERATED_TOKENS_PER_SECOND:g} generated tokens per second (assumed).",
        ),
    )


def _azure_functions(files: list[Path]) -> Workload:
    return Workload(
        name=f"azure-functions {files[0].name}",
        pods=read_azure_functions(files[0]),
        notes=("An invocation is a pod that lives for its duration.",),
    )


_READERS: dict[str, tuple[tuple[str, ...], Callable[[list[Path]], Workload]]] = {
    "openb": (("NODES.csv", "PODS.csv"), _openb),
    "azure-llm": (("FILE.csv",), _azure_llm),
    "azure-functions": (("FILE.csv",), _azure_functions),
}

#: The forms that `read_trace` accepts, for a command's help.
TRACE_FORMS = ", ".join(f"{kind}:{','.join(files)}" for kind, (files, _) in _READERS.items())


def read_trace(text: str) -> Workload:
    """Return the workload that `KIND:FILE[,FILE]` names. Raises `TraceError`."""
    kind, colon, rest = text.partition(":")
    if not colon or kind not in _READERS:
        raise TraceError(f"--trace {text!r}: expected one of {TRACE_FORMS}")
    names, read = _READERS[kind]
    files = [Path(part.strip()) for part in rest.split(",") if part.strip()]
    if len(files) != len(names):
        raise TraceError(f"--trace {text!r}: expected {kind}:{','.join(names)}, found {len(files)} file(s)")
    return read(files)
