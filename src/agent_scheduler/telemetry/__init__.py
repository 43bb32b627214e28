"""What the process tells about itself: metrics, logs, pauses. Everything above may report here."""
