"""Dynamic resource allocation (resource.k8s.io/v1): the devices of a pod's claims, and the nodes that have them."""
