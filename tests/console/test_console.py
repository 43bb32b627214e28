"""The console with a real scheduler and a real browser."""

from __future__ import annotations

import asyncio
import json
import re
import zipfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp
import pytest

from bench.harness.processes import free_port
from tests.support.embedded import until
from tests.support.http_servers import http_server
from tests.support.needed import tool
from tests.unit.serving.test_console import OneToken

from .browser import Page, browser
from .world import ConsoleWorld, console_world

MERGE = "application/merge-patch+json"
CORDON = {"spec": {"unschedulable": True}}


class Viewer:
    """Reads the stream as the page does."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self._rest = b""

    async def next(self) -> dict[str, Any]:
        while b"\n\n" not in self._rest:
            self._rest += await self._answer.content.readany()
        event, _, self._rest = self._rest.partition(b"\n\n")
        found: dict[str, Any] = json.loads(event.split(b"data: ", 1)[1])
        return found

    async def until(self, key: str, part: str) -> dict[str, Any]:
        """Return the table `key` of the first event from now on in which its `part` is not empty."""
        async with asyncio.timeout(60):
            while not ((found := await self.next()).get(key) or {}).get(part):
                pass
        told: dict[str, Any] = found[key]
        return told


@asynccontextmanager
async def viewer(world: ConsoleWorld) -> AsyncIterator[Viewer]:
    async with aiohttp.ClientSession() as session, session.get(f"{world.url}stream") as answer:
        yield Viewer(answer)


async def until_page(page: Page, expression: str) -> None:
    async def so() -> bool:
        return bool(await page.value(expression))

    await until(so)


async def until_told(page: Page, where: str, what: str) -> None:
    await until_page(page, f"document.querySelector('{where}').textContent.includes('{what}')")


async def test_the_stream_tells_all_and_then_only_what_changes() -> None:
    async with console_world(9, port=free_port()) as world, viewer(world) as it:
        whole = await it.next()
        assert [each[1] for each in whole["nodes"]["spec"]] == [f"node-{number:05d}" for number in range(9)]
        assert whole["nodes"]["spec"][0][2:] == [16000, 64 << 30, 8, False]
        assert whole["nodes"]["spec"][1][2:] == [16000, 64 << 30, 4, False]
        assert [each["name"] for each in whole["queues"]] == ["default", "root"]
        await world.cluster.add_pod("a", cpu="3", nodeSelector={"kubernetes.io/hostname": "node-00004"})
        async with asyncio.timeout(60):
            while not (news := await it.next())["nodes"]["use"]:
                assert news["nodes"]["spec"] == []
        assert news["nodes"]["use"] == [[4, 3000, 16 << 20, 0, 1]]
        assert "queues" not in news
        await world.cluster.ask("PATCH", "/api/v1/nodes/node-00002", CORDON, content_type=MERGE)
        nodes = await it.until("nodes", "spec")
        assert nodes["spec"] == [[2, "node-00002", 16000, 64 << 30, 0, True]]
        await world.cluster.ask("DELETE", "/api/v1/nodes/node-00007")
        assert (await it.until("nodes", "gone"))["gone"] == [7]


@pytest.mark.wide
async def test_stages_of_a_job_and_its_queue_are_told() -> None:
    async with console_world(9, port=free_port()) as world, viewer(world) as it:
        await world.queues()
        await world.jobs(1)
        (gang,) = (await it.until("gangs", "phases"))["shown"]
        assert (gang["owner"], gang["queue"], gang["needs"]) == ("Job train-0", "training", 5)


@pytest.mark.wide
async def test_people_see_what_goes_on_and_why_a_pod_waits() -> None:
    async with console_world(50, port=free_port()) as world:
        await world.queues()
        await world.jobs(3)
        agents = asyncio.create_task(world.agents(30))
        await world.cluster.add_pod("too-large", cpu="99")
        async with browser(world.url) as page:
            await until_page(page, "document.querySelector('#state').textContent === 'leader'")
            # Live: the rate is that of pods created since.
            await until_page(page, "parseFloat(document.querySelector('#tile-rate').textContent) > 0")
            await until_page(page, "document.querySelector('#tile-nodes').textContent === '50'")
            await until_page(page, "!document.querySelector('#queues').hidden")
            for told in ("waiting for other tasks", "queue training has too little capability left"):
                await until_page(page, f"document.querySelector('#gangs').innerText.includes('{told}')")
            assert await page.value("document.querySelector('#shards').hidden")
            # Only by keyboard.
            await page.value("document.querySelector('#map').focus()")
            await page.press("ArrowRight", "ArrowRight")
            assert (await page.text("#node")).startswith("node-00001: ")
            await page.press("End")
            assert (await page.text("#node")).startswith("node-00049: ")
            await page.value("document.querySelector('#asked').focus()")
            await page.type("default/too-large")
            await page.press("Enter")
            await until_told(page, "#answer", "Insufficient cpu")
            # The pending pods, with a filter, and a pod of the list is explained.
            await until_told(page, "#pending-rows", "default/too-large")
            assert "Insufficient cpu" in await page.text("#pending-rows")
            await page.value("document.querySelector('#filter-namespace').focus()")
            await page.type("nowhere")
            await page.press("Enter")
            await until_told(page, "#pending-count", "0 pods, of those that the filter selects")
            await page.value("document.querySelector('#filter-namespace').value = 'default'")
            await page.value("document.querySelector('#filter').requestSubmit()")
            await until_told(page, "#pending-rows", "default/too-large")
            await page.value("document.querySelector('#asked').value = ''")
            await page.value("document.querySelector('#pending-rows button').click()")
            await until_told(page, "#answer", "Insufficient cpu")
            # Without a pointer in it, a plot tells its last values.
            assert await page.value("document.querySelector('#plot-rate .u-value').textContent") != "–"
            # The colors of legends follow the scheme of the browser, as the lines do.
            marker = "getComputedStyle(document.querySelector('#plot-rate .u-marker[style]')).borderColor"
            for scheme, color in (("light", "rgb(9, 105, 218)"), ("dark", "rgb(88, 166, 255)")):
                await page.scheme(scheme)
                await until_page(page, f"{marker} === '{color}'")
            # On a narrow screen all columns of the tables are visible without scrolling, each with its label.
            await page.picture(width=400)
            wide = "[...document.querySelectorAll('.wide, pre, main')].filter((it) => it.scrollWidth > it.clientWidth)"
            assert await page.value(f"{wide}.map((it) => it.outerHTML)") == []
            label = "getComputedStyle(document.querySelector('#pending-rows .why'), '::before').content"
            assert await page.value(label) == '"Reason: "'
            assert page.problems == []
        agents.cancel()
        with suppress(asyncio.CancelledError):
            await agents


@pytest.mark.wide
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_barrier(scheme: str) -> None:
    with zipfile.ZipFile(tool("axe.zip")) as wheel:
        axe = wheel.read("axe_playwright_python/axe.min.js").decode()
    async with console_world(9, port=free_port()) as world:
        await world.queues()
        await world.jobs(1)
        await world.cluster.add_pod("too-large", cpu="99")
        async with browser(world.url, scheme=scheme) as page:
            await until_told(page, "#pending-rows", "default/too-large")
            await until_page(page, "!document.querySelector('#gangs').hidden")
            await page.value(f"{axe}; undefined")
            for width in (1400, 400):
                await page.picture(width=width)
                found = await page.value("axe.run().then((found) => found.violations)")
                assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []


@pytest.mark.wide
async def test_shards_are_shown_by_colours_that_mean_nothing_else() -> None:
    async with console_world(9, port=free_port(), sharded=True) as world, browser(world.url) as page:
        await until_page(page, "!document.querySelector('#shards').hidden")
        table = "document.querySelector('#shard-rows').innerText.replaceAll('\\t', ' ')"
        # The sixth node is still the other's.
        await until_page(page, f"{table}.includes('agent-scheduler 6 5 1 0 20')")
        assert "training 3 4 0 1" in str(await page.value(table))
        await page.value("document.querySelector('[name=colour][value=shard]').click()")
        assert await page.text("#legend") == "agent-scheduler training top edge: unschedulable"
        told = "[...document.querySelectorAll('#legend i')].map((each) => getComputedStyle(each).backgroundColor)"
        colours = [tuple(map(int, re.findall(r"\d+", each))) for each in await page.value(told)]
        assert len({*colours}) == 3
        # What is unschedulable is red, and nothing else is.
        reds = [red > 2 * max(green, blue) for red, green, blue in colours]
        assert reds == [False, False, True]
        await page.value("document.querySelector('#map').focus()")
        await page.press("End")
        assert "shard training" in await page.text("#node")
        assert page.problems == []


@pytest.mark.wide
async def test_a_token_is_asked_for_and_used() -> None:
    async with console_world(3, port=free_port()) as world, AsyncExitStack() as ends:
        server = http_server(world.runtime.sources(), address="127.0.0.1", port=0, authorizer=OneToken())
        port = await server.start()
        ends.push_async_callback(server.stop)
        async with browser(f"http://127.0.0.1:{port}/ui/") as page:
            await until_page(page, "!document.querySelector('#token').hidden")
            assert await page.text("#state") == "waiting for a token"
            await page.type("wrong")
            await page.press("Enter")
            await until_told(page, "#token-problem", "not allowed to get")
            await page.type("good")
            await page.press("Enter")
            await until_page(page, "document.querySelector('#state').textContent === 'leader'")
            # Nothing keeps it once the page is closed.
            kept = "localStorage.length + sessionStorage.length + document.cookie.length"
            assert await page.value(kept) == 0
            assert [each for each in page.problems if " 401 " not in each and " 403 " not in each] == []
