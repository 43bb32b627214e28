"""The state of pods and nodes in compiled form: columns, and classes of pods."""
