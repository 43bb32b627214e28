"""Faults of pods, and the fields that a real API server reports for each (`pod_faults.yaml`)."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

_FAULTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())

of_containers = pytest.mark.parametrize(("fields", "causes"), _FAULTS["containers"])
of_pods = pytest.mark.parametrize(("spec", "causes"), _FAULTS["pods"])
