"""Time is virtual in these tests."""

from kube_client.testing.virtual import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
