"""Makes the pictures of docs/images: the console, `agent-scheduler top`, and the demo's report.

   python -m tests.console.pictures [--only NAME ...]

The console is pictured at 10 nodes on a narrow screen, at 50 nodes, at 300 in two shards and at 5,000. Needs Chromium;
the report is that of the last `make demo` (out/demo-report.html). Prints how long the console took to draw the map of
nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import html
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from agent_scheduler.telemetry.logs import setup
from bench.harness.processes import free_port
from tests.support.places import ROOT

from .browser import browser
from .test_console import until_page
from .world import ConsoleWorld, console_world

IMAGES = ROOT / "docs" / "images"
REPORT = ROOT / "out" / "demo-report.html"
_TERMINAL = "<meta charset=utf-8><body style='background:#0d1117'><pre style='color:#e6edf3'>"


@asynccontextmanager
async def busy(nodes: int, rate: float, *, sharded: bool = False) -> AsyncIterator[ConsoleWorld]:
    async with console_world(nodes, port=free_port(), sharded=sharded) as world:
        await world.queues()
        await world.jobs(6)
        await world.cluster.add_pod("too-large", cpu="99")
        agents = asyncio.create_task(world.agents(rate, lives=12.0))
        try:
            yield world
        finally:
            agents.cancel()
            with suppress(asyncio.CancelledError):
                await agents


async def console(nodes: int, scheme: str, *, colour: str = "cpu", sharded: bool = False, width: int = 1400) -> bytes:
    async with busy(nodes, 100, sharded=sharded) as world, browser(world.url, scheme=scheme) as page:
        await until_page(page, "document.querySelector('#state').textContent === 'leader'")
        await page.value("document.querySelector('#asked').value = 'default/too-large'")
        await page.value("document.querySelector('#ask').requestSubmit()")
        await page.value(f"document.querySelector('[name=colour][value={colour}]').click()")
        await asyncio.sleep(25)
        drawn = await page.value("document.documentElement.dataset.paintMs")
        print(f"{nodes} nodes: the map was drawn in {drawn} ms")
        assert page.problems == [], page.problems
        return await page.picture(width=width)


async def top() -> bytes:
    async with busy(50, 100) as world:
        await asyncio.sleep(8)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "agent_scheduler", "top", "--once"),
            *("--server", world.url.removesuffix("/ui/")),
            stdout=asyncio.subprocess.PIPE,
        )
        shown, _ = await process.communicate()
    page = _TERMINAL + html.escape(shown.decode())
    with tempfile.NamedTemporaryFile("w", suffix=".html", encoding="utf-8") as file:
        file.write(page)
        file.flush()
        async with browser(f"file://{file.name}") as tab:
            return await tab.picture(width=1100, height=560)


async def report() -> bytes:
    async with browser(f"file://{REPORT}") as page:
        await asyncio.sleep(1)
        return await page.picture(width=1200, height=1400)


PICTURES: dict[str, Callable[[], Awaitable[bytes]]] = {
    "console-10": lambda: console(10, "dark", width=400),
    "console-50": lambda: console(50, "light"),
    "console-shards": lambda: console(300, "light", colour="shard", sharded=True),
    "console-5000": lambda: console(5000, "dark"),
    "top": top,
    "report": report,
}


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PICTURES, default=list(PICTURES))
    setup(level="error", log_format="console")
    IMAGES.mkdir(exist_ok=True)
    for name in parser.parse_args().only:
        (IMAGES / f"{name}.png").write_bytes(await PICTURES[name]())


if __name__ == "__main__":
    asyncio.run(main())
