"""These tests run in virtual time."""

from tests.support.virtual import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
