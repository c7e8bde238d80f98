"""The named steps of the provisioner, with a failpoint before and after each for the crash tests."""

from enum import StrEnum


class Step(StrEnum):
    """In their order. What each leaves behind, and who goes on after a crash, is in the module that performs it."""

    # A pod gets a node
    BATCH = "batch"
    SNAPSHOT = "snapshot"
    PLAN = "plan"
    COMMIT = "commit"
    CLAIMS_CREATED = "claims-created"
    PLACEMENT = "placement"
    TOKEN = "token"
    TEMPLATE = "template"  # within `fleet`: the cloud has what CreateFleet will name
    FLEET = "fleet"
    LAUNCHED = "launched"
    NODE_SEEN = "node-seen"
    HINTED = "hinted"
    REGISTERED = "registered"
    INITIALIZED = "initialized"
    TAGGED = "tagged"

    # An interruption
    REPLANNED = "replanned"
    READY = "ready"
    TERMINATED = "terminated"  # the claim's own finalizer, after which nothing is left

    # The end of a node
    TAINTED = "tainted"
    DRAINING = "draining"
    DRAINED = "drained"
    VOLUMES = "volumes"
    INSTANCE = "instance"
    RELEASED = "released"

    # A term
    START = "start"
    HAND_OVER = "hand-over"
