"""Metrics, logs, traces, and the measurement of pauses. All higher layers may report here."""
