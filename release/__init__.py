"""Programs that make a release: its version, the long descriptions of its distributions, and all its files."""
