"""The configuration's files while the process runs: what they come to say takes effect, or is refused.

The file is compared by its content, every few seconds: a ConfigMap is replaced by swapping symbolic links, which no
watch on the file itself sees. A new content counts once it was seen twice, so that a file which is just being written
is not read half; `now` does not wait. A content that was refused is not tried again until it changes, or by `now`.

A configuration is loaded and validated whole, as at the start, flags laid over it, before anything of it is applied.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from agent_scheduler.config.load import Source, Texts, to_dict
from agent_scheduler.config.schema import Configuration
from apimachinery.codec import extra, settings
from apimachinery.errors import ConfigurationError

#: Seconds between two looks at the file.
LOOK_EVERY = 2.0

#: Settings that take effect while the process runs, with all that is below them. Every other needs a restart.
CHANGEABLE = frozenset(
    ".".join(setting.path) for setting in settings(Configuration) if extra(setting.kind).get("live")
)


class _Content(NamedTuple):
    """What the files say, or why one cannot be read."""

    texts: Texts | None
    problem: str


class ReloadObserver(Protocol):
    """Is told what became of a change of the file."""

    def applied(self, configuration: Configuration, changed: list[str]) -> None:
        """`changed`: paths of settings; empty if the file says the same in other words."""

    def refused(self, problem: str) -> None:
        """Nothing has changed."""

    def without_effect(self, warning: str) -> None:
        """Something in the file has no effect."""


class Reloader:
    """Owner of what is known of the file. Everything but `run` is synchronous, so it happens between cycles."""

    def __init__(
        self,
        source: Source,
        current: Configuration,
        *,
        apply: Callable[[Configuration], None],
        observer: ReloadObserver,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`current` was loaded from `source`. `apply` puts a valid configuration into effect, or raises having
        changed nothing."""
        self._source = source
        self._current = current
        self._apply = apply
        self._observer = observer
        self._sleep = sleep
        #: What the file said when it was last applied or refused, and what it says since the last look, if other.
        self._settled = _Content(source.loaded, "")
        self._fresh: _Content | None = None

    async def run(self) -> None:
        """Look at the file until cancelled."""
        while True:
            await self._sleep(LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Take in what the file says if that is new, and was the same at the last look."""
        content = self._read()
        if content == self._settled:
            self._fresh = None
        elif content != self._fresh:
            self._fresh = content
        else:
            self._take(content)

    def now(self) -> None:
        """Take in what the file says, new or not."""
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
                raise ConfigurationError(
                    f"{', '.join(fixed)}: cannot change while the process runs; restart it"
                )
            self._apply(wanted)
        except ConfigurationError as error:
            self._observer.refused(str(error))
        except Exception as error:
            # A plugin from elsewhere may raise anything, and the scheduler runs on as it is.
            self._observer.refused(f"{type(error).__name__}: {error}")
        else:
            self._current = wanted
            self._observer.applied(wanted, changed)


def differences(before: Configuration, after: Configuration) -> list[str]:
    """Paths of the settings that are not the same; a list is one setting."""
    old, new = _flat(to_dict(before)), _flat(to_dict(after))
    if not before.leader_election.leader_elect and not after.leader_election.leader_elect:
        # Nobody reads the rest of that section, and the lease's name follows that of the first profile.
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
