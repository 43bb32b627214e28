"""Makes the pictures of docs/images: the console, the demo's report, `agent-scheduler top`, and a recorded session.

   python -m tests.console.pictures [--only NAME ...]

The console is pictured at 10 nodes on a narrow screen, at 50 nodes, at 300 in two shards and at 5,000, in light and in
dark. Needs Chromium, and tmux and kubectl for the terminals. Runs one world after another, for about seven minutes in
all. Prints how long the console took to draw the map of nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from PIL import Image

from agent_scheduler.telemetry.logs import setup
from bench.harness.processes import free_port
from tests.support.places import ROOT

from .browser import Page, browser
from .recording import session
from .terminal import Terminal, still
from .test_console import until_page
from .world import ConsoleWorld, console_world

IMAGES = ROOT / "docs" / "images"
#: Seconds after which plots of a minute are full.
_FULL = 62
Pictures = Mapping[str, bytes]


@asynccontextmanager
async def busy(nodes: int, rate: float, *, sharded: bool = False) -> AsyncIterator[ConsoleWorld]:
    async with console_world(nodes, port=free_port(), sharded=sharded) as world:
        await world.services(min(2 * nodes, 3000))
        await world.queues()
        await world.jobs(5)
        await world.cluster.add_pod("too-large", cpu="99")
        agents = asyncio.create_task(world.agents(rate, lives=12.0))
        try:
            yield world
        finally:
            agents.cancel()
            with suppress(asyncio.CancelledError):
                await agents


def _small(png: bytes) -> bytes:
    """Return the picture with at most 256 colors, which is a third of the size."""
    out = io.BytesIO()
    colors = Image.open(io.BytesIO(png)).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    colors.save(out, "PNG", optimize=True)
    return out.getvalue()


async def _both(page: Page, name: str, *, width: int, until: str) -> Pictures:
    """Return the page in light as `name`, and in dark."""
    found = {}
    for scheme, file in (("light", f"{name}.png"), ("dark", f"{name}-dark.png")):
        await page.scheme(scheme)
        await asyncio.sleep(1.5)
        found[file] = _small(await page.picture(width=width, until=until))
    return found


async def console(
    name: str, nodes: int, *, colour: str = "cpu", sharded: bool = False, width: int = 1400, until: str = "body"
) -> Pictures:
    async with busy(nodes, min(nodes, 100), sharded=sharded) as world, browser(world.url) as page:
        await until_page(page, "document.querySelector('#state').textContent === 'leader'")
        await page.value("document.querySelector('#asked').value = 'default/too-large'")
        await page.value("document.querySelector('#ask').requestSubmit()")
        await page.value(f"document.querySelector('[name=colour][value={colour}]').click()")
        await asyncio.sleep(_FULL)
        drawn = await page.value("document.documentElement.dataset.paintMs")
        print(f"{nodes} nodes: the map was drawn in {drawn} ms")
        assert page.problems == [], page.problems
        return await _both(page, name, width=width, until=until)


async def top() -> Pictures:
    async with busy(50, 50) as world:
        await asyncio.sleep(15)
        server = world.url.removesuffix("/ui/")
        async with Terminal(80, 24, command=f"{sys.executable} -m agent_scheduler top --server {server}") as terminal:
            await asyncio.sleep(5)
            return {"top.svg": still(await terminal.screen(), columns=80, title="agent-scheduler top").encode()}


async def report() -> Pictures:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        command = ("-m", "agent_scheduler", "demo", "--report", str(file))
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.DEVNULL)
        assert await process.wait() == 0
        async with browser(f"file://{file}") as page:
            return await _both(page, "report", width=1200, until=".plots")


async def recording() -> Pictures:
    return {"session.svg": (await session()).encode()}


PICTURES: dict[str, Callable[[], Awaitable[Pictures]]] = {
    "console-10": lambda: console("console-10", 10, width=400, until="#queues"),
    "console-50": lambda: console("console-50", 50, until="#nodes"),
    "console-shards": lambda: console("console-shards", 300, colour="shard", sharded=True),
    "console-5000": lambda: console("console-5000", 5000, until="#pending"),
    "top": top,
    "report": report,
    "session": recording,
}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES))
    setup(level="error", log_format="console")
    IMAGES.mkdir(exist_ok=True)
    for name in parser.parse_args().only:
        for file, content in (await PICTURES[name]()).items():
            (IMAGES / file).write_bytes(content)
            print(f"docs/images/{file}: {len(content) / 1000:.0f} kB")


if __name__ == "__main__":
    asyncio.run(main())
