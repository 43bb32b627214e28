"""agent-scheduler. Its architecture: ARCHITECTURE.md."""

#: Also the version of the distribution, which is built from it.
__version__ = "0.1.0"
