"""agent-scheduler. Its architecture: ARCHITECTURE.md."""

#: Also the version of the distribution, which is built from it.
__version__ = "0.1.0"
#: Where the pages of this version are; a release has their address.
DOCUMENTATION = f"docs/README.md in the tag v{__version__} of the repository"
