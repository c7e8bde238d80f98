"""A thin Kubernetes watch that feeds the Redis mirror and wakes the provisioner."""
