"""Time is virtual in these tests, but for those that are marked `real_time`, which need sockets."""

from kube_client.testing.virtual import pytest_asyncio_loop_factories as pytest_asyncio_loop_factories
