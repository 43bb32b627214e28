from __future__ import annotations

import pytest

from ..support import World
from . import kubelets


@pytest.fixture
def world() -> World:
    return kubelets("n1")
