"""A pytest plugin for runs with a mutant: the first example that fails is enough, a smaller one tells nobody more."""

from __future__ import annotations

from hypothesis import Phase, settings


def pytest_configure() -> None:
    """After the tests' own profile has been loaded, which this one changes."""
    settings.register_profile(
        "unshrunk",
        settings.get_profile(settings.get_current_profile_name()),
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
    )
    settings.load_profile("unshrunk")
