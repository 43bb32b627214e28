"""The HTTP server of a running scheduler: health, metrics, configuration and debug pages."""
