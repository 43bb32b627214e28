"""Time is virtual in these tests, but for those that are marked `real_time`, which need sockets or processes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kube_client.testing.virtual import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories

if TYPE_CHECKING:
    from kube_client.testing.authority import Authority


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    from kube_client.testing.authority import Authority

    return Authority(tmp_path)
