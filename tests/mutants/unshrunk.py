"""A pytest plugin for runs with a mutant: the first failing example suffices, a smaller one adds no information."""

from __future__ import annotations

from hypothesis import Phase, settings


def pytest_configure() -> None:
    """Change the tests' own profile after it has been loaded."""
    settings.register_profile(
        "unshrunk",
        settings.get_profile(settings.get_current_profile_name()),
        phases=(Phase.explicit, Phase.generate),
        report_multiple_bugs=False,
    )
    settings.load_profile("unshrunk")
