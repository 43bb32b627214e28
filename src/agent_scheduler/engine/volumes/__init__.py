"""A pod's volumes: feasible nodes, reservations for a pod that is being bound, and the progress of their binding."""
