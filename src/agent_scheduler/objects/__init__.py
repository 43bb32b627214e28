"""Values as the wire has them, and how to read them: no I/O, no policy."""
