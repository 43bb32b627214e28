from __future__ import annotations

import pytest

from .people import Guarded


@pytest.fixture
def server() -> Guarded:
    return Guarded()
