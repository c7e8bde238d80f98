"""The named steps of the watcher, with a failpoint before and after each for the crash tests."""

from enum import StrEnum


class Step(StrEnum):
    """In their order. A watcher that died at any of them is followed by one that begins anew with full lists."""

    EPOCH = "epoch"  # the mirror is the leader's
    LISTED = "listed"  # Kubernetes answered with a full list
    SYNCED = "synced"  # the list is in the mirror
    SEEN = "seen"  # changes are in the mirror
    WOKEN = "woken"  # the provisioner was told to look
    HAND_OVER = "hand-over"  # told to stop, and not leading any more
