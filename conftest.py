"""What holds for the tests of all distributions of this repository is a plugin: see tests/plugin.py."""

pytest_plugins = ["tests.plugin"]
