from __future__ import annotations

import pytest

from embedded.support import World

from . import kubelets


@pytest.fixture
def world() -> World:
    return kubelets("n1")
