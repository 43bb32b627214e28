"""What the process reports about itself: metrics, logs, pauses. Everything above may report here."""
