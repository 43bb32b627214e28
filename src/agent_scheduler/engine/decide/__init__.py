"""Decisions on a snapshot: kept answers of a class of pods, candidate nodes, and whether these are still good."""
