"""agent-scheduler. What it is made of: ARCHITECTURE.md."""

#: Also of the distribution, which is built with it.
__version__ = "0.1.0"
