"""Builders of storage under their former name, for tests that have yet to import tests.support.storage."""

from tests.support.engine import World as Storage  # noqa: F401
from tests.support.engine import node, put  # noqa: F401
from tests.support.storage import *  # noqa: F403
