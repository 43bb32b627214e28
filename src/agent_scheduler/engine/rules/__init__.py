"""What several plugins decide alike."""
