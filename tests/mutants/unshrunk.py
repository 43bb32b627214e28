"""A pytest plugin for runs with a mutant: the first example that fails is enough, a smaller one tells nobody more."""

from __future__ import annotations

from hypothesis import Phase, settings

settings.register_profile("unshrunk", phases=(Phase.explicit, Phase.generate), report_multiple_bugs=False)
settings.load_profile("unshrunk")
