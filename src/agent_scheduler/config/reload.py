"""Watches the configuration's files while the process runs: changes are applied or rejected.

Files are compared by content every few seconds, because a ConfigMap is replaced by swapping symbolic links, which a
watch on the file does not notice. New content counts once it was read twice, so that a file is not read while it is
being written; `now` does not wait. Rejected content is tried again only after a change, or by `now`.

A configuration is loaded and validated as a whole, including flags, before any of it is applied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from agent_scheduler.config.load import ConfigurationSource, Texts, to_dict
from agent_scheduler.config.schema import Configuration
from agent_scheduler.telemetry.observers import ReloadReports
from apimachinery.codec import extra, settings
from apimachinery.errors import ConfigurationError

#: Seconds between two checks of the file.
LOOK_EVERY = 2.0

#: Settings that take effect while the process runs, including everything below them. All others need a restart.
CHANGEABLE = frozenset(".".join(setting.path) for setting in settings(Configuration) if extra(setting.kind).get("live"))


class _Content(NamedTuple):
    """The content of the files, or the reason why one is unreadable."""

    texts: Texts | None
    problem: str


class Reloader:
    """Owns the known state of the file. Everything except `run` is synchronous, so it happens between cycles."""

    def __init__(
        self,
        source: ConfigurationSource,
        current: Configuration,
        *,
        apply: Callable[[Configuration], None],
        observer: ReloadReports,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """Watch `source`; `current` was loaded from it. `apply` activates a configuration or raises unchanged."""
        self._source = source
        self._current = current
        self._apply = apply
        self._observer = observer
        self._sleep = sleep
        #: The content that was last applied or rejected, and a newer one since the last check, if any.
        self._settled = _Content(source.loaded, "")
        self._fresh: _Content | None = None

    async def run(self) -> None:
        """Check the file until cancelled."""
        while True:
            await self._sleep(LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Apply new content if it is the same as at the last check."""
        content = self._read()
        if content == self._settled:
            self._fresh = None
        elif content != self._fresh:
            self._fresh = content
        else:
            self._take(content)

    def now(self) -> None:
        """Apply the current content, new or not."""
        self._take(self._read())

    def _read(self) -> _Content:
        try:
            return _Content(self._source.texts(), "")
        except ConfigurationError as error:
            return _Content(None, str(error))

    def _take(self, content: _Content) -> None:
        self._settled, self._fresh = content, None
        if content.problem:
            self._observer.refused(content.problem)
            return
        try:
            wanted = self._source.load(content.texts, warn=self._observer.without_effect)
            changed = differences(self._current, wanted)
            fixed = [path for path in changed if not _is_changeable(path)]
            if fixed:
                raise ConfigurationError(f"{', '.join(fixed)}: cannot change while the process runs; restart it")
            self._apply(wanted)
        except ConfigurationError as error:
            self._observer.refused(str(error))
        except Exception as error:
            # An external plugin may raise anything, and the scheduler must continue unchanged.
            self._observer.refused(f"{type(error).__name__}: {error}")
        else:
            self._current = wanted
            self._observer.applied(wanted, changed)


def differences(before: Configuration, after: Configuration) -> list[str]:
    """Return the paths of the settings that differ; a list is one setting."""
    old, new = _flat(to_dict(before)), _flat(to_dict(after))
    if not before.leader_election.leader_elect and not after.leader_election.leader_elect:
        # The rest of that section is unused, and the lease's name depends on the first profile.
        old = {path: value for path, value in old.items() if not path.startswith("leaderElection.")}
    return [path for path in old if old[path] != new.get(path)]


def _flat(value: Any, at: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        return {at: value}
    found: dict[str, Any] = {}
    for key, item in value.items():
        found.update(_flat(item, f"{at}.{key}" if at else key))
    return found


def _is_changeable(path: str) -> bool:
    return any(path == setting or path.startswith(f"{setting}.") for setting in CHANGEABLE)
