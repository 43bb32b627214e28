"""Dynamic resource allocation (resource.k8s.io/v1): which devices a pod's claims get, and on which nodes."""
