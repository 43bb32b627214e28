"""Groups of pods that run together: their members, and the number of members that suffices."""
