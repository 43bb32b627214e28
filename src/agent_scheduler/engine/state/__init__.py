"""The state of pods and nodes in compiled form: the ledger (the only owner of capacity), columns, classes of pods."""
