"""What is known of pods and nodes, compiled: the ledger (the one owner of capacity), columns, classes of pods."""
