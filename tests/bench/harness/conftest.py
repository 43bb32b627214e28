"""Time is virtual in these tests."""

from tests.support.virtual import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
