"""Rules that several plugins share."""
