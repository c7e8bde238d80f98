"""Kubernetes and Karpenter v1 objects, requirements, taints and quantities as frozen data."""
