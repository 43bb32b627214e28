"""Controllers of Deployments, ReplicaSets and Jobs, as small as users of kubectl can do with: what those of
kube-controller-manager do in a real cluster, by the same rules."""
