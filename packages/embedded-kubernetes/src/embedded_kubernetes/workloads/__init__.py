"""Controllers of workloads (Deployments, StatefulSets, DaemonSets, Jobs and others), as in kube-controller-manager."""
