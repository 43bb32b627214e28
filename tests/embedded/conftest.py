from __future__ import annotations

import pytest

from .support import World


@pytest.fixture
def world() -> World:
    return World()
