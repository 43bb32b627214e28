"""A pod's volumes: which nodes can have them, what is taken for a pod that is being bound, and when that is done."""
