"""The watcher: lists and watches Kubernetes, writes the Redis mirror, and wakes the provisioner. Nothing else.

Of several replicas one leads; the others stand by. It knows no cloud: the kinds of NodeClasses are a setting.
"""
