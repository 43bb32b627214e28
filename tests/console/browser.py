"""A headless Chromium, driven by its own protocol (CDP) over a websocket."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.support.embedded import until
from tests.support.needed import need

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Return its path, which the test needs."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    need(found, f"there is no browser on the PATH: {', '.join(_NAMES)}")
    assert found is not None
    return found


class Page:
    """One tab. `problems`: errors in its console, exceptions, and responses of 400 and above."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self.problems: list[str] = []

    async def read(self) -> None:
        async for message in self._socket:
            told = message.json()
            if "id" in told:
                future = self._waiting.pop(told["id"])
                if "error" in told:
                    future.set_exception(RuntimeError(told["error"]["message"]))
                else:
                    future.set_result(told["result"])
                continue
            params = told.get("params", {})
            match told["method"]:
                case "Runtime.exceptionThrown":
                    details = params["exceptionDetails"]
                    self.problems.append(str(details.get("exception", {}).get("description") or details))
                case "Runtime.consoleAPICalled" if params["type"] in ("error", "warning", "assert"):
                    self.problems.append(str([each.get("value") for each in params["args"]]))
                case "Log.entryAdded" if params["entry"]["level"] in ("error", "warning"):
                    self.problems.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    async def say(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        return await asyncio.wait_for(future, 100)

    async def value(self, expression: str) -> Any:
        """Return the awaited value of a JavaScript expression, which must encode as JSON."""
        told = await self.say("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def text(self, selector: str) -> str:
        return str(await self.value(f"document.querySelector({selector!r}).innerText"))

    async def press(self, *keys: str) -> None:
        for key in keys:
            for kind in ("keyDown", "keyUp"):
                await self.say("Input.dispatchKeyEvent", type=kind, key=key, code=key, **_CODES[key])

    async def type(self, text: str) -> None:
        await self.say("Input.insertText", text=text)

    async def open(self, url: str) -> None:
        for domain in ("Runtime", "Log", "Page", "Network"):
            await self.say(f"{domain}.enable")
        await self.say("Page.navigate", url=url)

        async def loaded() -> bool:
            return bool(await self.value("document.readyState + location.href") == f"complete{url}")

        await until(loaded)

    async def scheme(self, name: str) -> None:
        """Set the color scheme, `light` or `dark`."""
        chosen = {"name": "prefers-color-scheme", "value": name}
        await self.say("Emulation.setEmulatedMedia", features=[chosen])

    async def picture(self, *, width: int = 1400, until: str = "body") -> bytes:
        """Return a PNG of the page up to the end of the element that the selector `until` finds."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        await self.say("Emulation.setDeviceMetricsOverride", **size)
        await asyncio.sleep(0.5)
        bottom = await self.value(f"document.querySelector({until!r}).getBoundingClientRect().bottom + scrollY")
        clip = {"x": 0, "y": 0, "width": width, "height": round(bottom) + 16, "scale": 1}
        told = await self.say("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(told["data"])


_CODES: dict[str, dict[str, Any]] = {
    "Enter": {"windowsVirtualKeyCode": 13, "text": "\r"},
    "ArrowRight": {"windowsVirtualKeyCode": 39},
    "ArrowDown": {"windowsVirtualKeyCode": 40},
    "End": {"windowsVirtualKeyCode": 35},
}


@asynccontextmanager
async def browser(url: str, *, scheme: str = "light") -> AsyncIterator[Page]:
    """Run a browser with one page that displays `url`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = await asyncio.create_subprocess_exec(
            chromium(),
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--mute-audio"),
            *("--no-first-run", "--disable-background-networking", "--hide-scrollbars", "--remote-debugging-port=0"),
            *(f"--user-data-dir={profile}", "--window-size=1400,900", "about:blank"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        reading: asyncio.Task[None] | None = None
        try:
            assert process.stderr is not None
            async with asyncio.timeout(60):
                while b"DevTools listening on " not in (line := await process.stderr.readline()):
                    assert line, "the browser ended"
            base = line.decode().split("ws://")[1].split("/")[0]
            draining = asyncio.create_task(process.stderr.read())
            async with aiohttp.ClientSession() as session:
                async with session.get(f"http://{base}/json") as answer:
                    tab = next(each for each in await answer.json() if each["type"] == "page")
                async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    page = Page(socket)
                    reading = asyncio.create_task(page.read())
                    await page.scheme(scheme)
                    await page.open(url)
                    yield page
        finally:
            if reading is not None:
                reading.cancel()
            if process.returncode is None:
                process.kill()
            await process.wait()
            draining.cancel()
