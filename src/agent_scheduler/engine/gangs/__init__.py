"""Groups of pods that run together: whom they have, and how many of them are enough."""
