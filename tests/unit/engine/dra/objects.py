"""Builders of devices under their former name, for tests that have yet to import tests.support.devices."""

from tests.support.devices import *  # noqa: F403
