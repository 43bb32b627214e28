"""Types of API objects and their values: no I/O, no policy."""
