"""Records a session with the embedded cluster, the scheduler and kubectl in a terminal, for README.md."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from .terminal import Screen, Terminal, film

_COLUMNS, _ROWS = 84, 24
#: Seconds between two frames, and the characters that are typed in half of them.
_FRAME, _KEYS = 0.1, 4
_TRAINER = """\
apiVersion: v1
kind: Pod
metadata: {name: trainer}
spec:
  containers:
  - name: trainer
    image: trainer
    resources: {limits: {nvidia.com/gpu: "8"}}
"""
_SERVER = "--server http://127.0.0.1:10251"
_PROMPT = "$"
#: What is typed, the last row at which the next is typed, and seconds in between.
_STEPS = (
    ("agent-scheduler cluster --nodes 100 --node-gpus 4 --with-scheduler \\", ">", 0.0),
    ("  --kubeconfig-out kubeconfig >log 2>&1 &", _PROMPT, 0.3),
    ("until test -s kubeconfig; do sleep 0.1; done; export KUBECONFIG=kubeconfig", _PROMPT, 0.4),
    ("kubectl create deployment agents --image=agent --replicas=1000", _PROMPT, 0.2),
    ("kubectl rollout status deployment agents | tail -1", _PROMPT, 0.2),
    ("kubectl get deployment agents", _PROMPT, 1.5),
    ("kubectl get pods | head -4", _PROMPT, 2.0),
    ("clear; cat trainer.yaml", _PROMPT, 1.2),
    ("kubectl apply -f trainer.yaml", _PROMPT, 0.8),
    ("clear", _PROMPT, 0.0),
    (f"agent-scheduler explain default/trainer {_SERVER} | head -22", _PROMPT, 5.0),
)


class _Recorder:
    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._began = time.monotonic()
        self.frames: list[tuple[float, Screen]] = []

    def now(self) -> float:
        return time.monotonic() - self._began

    async def run(self) -> None:
        while True:
            at, screen = self.now(), await self._terminal.screen()
            if not self.frames or self.frames[-1][1] != screen:
                self.frames.append((at, screen))
            await asyncio.sleep(_FRAME)

    async def until(self, text: str) -> None:
        """Wait until the last row is `text`."""
        end = self.now() + 30
        while True:
            rows = [row for row in (await self._terminal.screen()).texts() if row]
            if rows and rows[-1] == text:
                return
            assert self.now() < end, rows
            await asyncio.sleep(_FRAME / 2)


async def session() -> str:
    """Return the recording as SVG."""
    folder = Path(sys.executable).parent
    prompts = r"PS1='\[\e[1;32m\]$\[\e[0m\] ' PS2='> '"
    shell = f"env PATH={folder}:{os.environ['PATH']} {prompts} bash --norc --noprofile"
    async with Terminal(_COLUMNS, _ROWS, command=shell) as terminal:
        (terminal.home / "trainer.yaml").write_text(_TRAINER)
        recorder = _Recorder(terminal)
        recording = asyncio.create_task(recorder.run())
        await recorder.until(_PROMPT)
        try:
            for typed, shown, pause in _STEPS:
                for begin in range(0, len(typed), _KEYS):
                    await terminal.type(typed[begin : begin + _KEYS])
                    await asyncio.sleep(_FRAME / 2)
                await terminal.press("Enter")
                await recorder.until(shown)
                await asyncio.sleep(pause)
            end = recorder.now()
        finally:
            recording.cancel()
            await terminal.type("clear; kill %1; wait")
            await terminal.press("Enter")
            await recorder.until(_PROMPT)
    return film(recorder.frames, columns=_COLUMNS, seconds=end, poster=end - 1, title="A session with agent-scheduler")
