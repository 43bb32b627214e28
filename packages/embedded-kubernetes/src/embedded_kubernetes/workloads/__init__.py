"""Minimal controllers of Deployments, ReplicaSets and Jobs, by the rules of kube-controller-manager."""
