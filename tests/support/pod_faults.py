"""Faults of pods, and the fields that a real API server reports for each: the cases of the embedded server."""

from __future__ import annotations

import pytest
import yaml

from tests.support.places import EMBEDDED

_FAULTS = yaml.safe_load((EMBEDDED / "tests/embedded/builtin/pod_faults.yaml").read_text())

of_containers = pytest.mark.parametrize(("fields", "causes"), _FAULTS["containers"])
of_pods = pytest.mark.parametrize(("spec", "causes"), _FAULTS["pods"])
