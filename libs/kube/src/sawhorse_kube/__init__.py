"""Kubernetes access: list, watch, patch, evict, drain, Lease, Events."""
