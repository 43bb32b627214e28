"""Other projects' clients run against the server as against a real cluster."""
