from __future__ import annotations

import pytest

from .examples import load_profile
from .support import World

load_profile()


@pytest.fixture
def world() -> World:
    return World()
