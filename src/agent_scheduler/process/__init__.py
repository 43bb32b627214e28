"""Long-running processes: configuration, lease, signals, supervision."""
