"""The embedded world: AWS, Kubernetes, Redis and kubelets for demo and tests. A test double."""
