"""A Kubernetes API server over real HTTP, for tests of clients, demos and benchmarks."""
