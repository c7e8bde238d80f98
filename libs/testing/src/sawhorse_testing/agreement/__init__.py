"""Does kube-scheduler agree with the planner? A mixed workload on a real cluster, and what became of its first plan.

`workload` and `surroundings` are the manifests, `drivers` play the parts of a node that the sandbox lacks, `history`
records who wrote what in which order, `trial` puts it all together.
"""
