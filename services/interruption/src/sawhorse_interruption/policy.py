"""What a message leads to: a table by kind, and the figures that follow from it. Pure.

To act upon another kind, give it a row. Everything else (finding the claim, the effects and their order, the drain)
reads the row and stays as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sawhorse_interruption.messages import Kind, Notice
from sawhorse_model.labels import DRAIN_OWNER, INTERRUPTED_AT, TERMINATION_TIMESTAMP
from sawhorse_model.manifests import ManifestError, format_time, parse_time

OWNER = "interruption"  # the value of the annotation sawhorse.dev/drain-owner

NOTICE_PERIOD = timedelta(seconds=120)  # what EC2 leaves between a spot warning and the end
LATE_GRACE = timedelta(seconds=20)  # for an instance that outlived its notice: it may go at any moment


@dataclass(frozen=True, slots=True)
class Response:
    """What a kind leads to.

    Args:
        acts: False: the message is counted and acknowledged, nothing else.
        reason: of the Event about claim and node.
        message: of that Event.
        unavailable: why the instance's offering is left out of launches for a while; empty: it is not.
        notice: how long after its time the instance ends; None: no deadline follows from it.
        urgency: lower goes first.
    """

    acts: bool
    reason: str = ""
    message: str = ""
    unavailable: str = ""
    notice: timedelta | None = None
    urgency: int = 9


_IGNORED = Response(acts=False)

TABLE: Mapping[Kind, Response] = {
    Kind.SPOT_INTERRUPTED: Response(
        acts=True,
        reason="SpotInterrupted",
        message="EC2 takes this spot instance back in two minutes",
        unavailable="SpotInterruption",
        notice=NOTICE_PERIOD,
        urgency=0,
    ),
    Kind.REBALANCE_RECOMMENDATION: _IGNORED,
    Kind.INSTANCE_STOPPED: _IGNORED,
    Kind.INSTANCE_TERMINATED: _IGNORED,
    Kind.SCHEDULED_CHANGE: _IGNORED,
    Kind.CAPACITY_RESERVATION_INTERRUPTED: _IGNORED,
    Kind.NO_OP: _IGNORED,
}


def respond(notice: Notice) -> Response:
    """The row of a notice; a notice that names no instance leads to nothing."""
    return TABLE[notice.kind] if notice.instance_ids else _IGNORED


def happened_at(notice: Notice, received: datetime) -> datetime:
    """When it happened. Never after it was received: a clock that runs ahead must not lengthen anything."""
    return min(notice.time, received) if notice.time is not None else received


def is_late(response: Response, happened: datetime, now: datetime) -> bool:
    """Whether the instance should be gone by now."""
    return response.notice is not None and now - happened > response.notice


def deadline_for(
    response: Response, happened: datetime, now: datetime, *, margin: timedelta, alive: bool
) -> datetime | None:
    """When the node has to be empty; None when the kind sets no deadline.

    Args:
        margin: how long before the instance's end.
        alive: of a late message: the cloud says that the instance still runs, so its pods get a short grace at least.
    """
    if response.notice is None:
        return None
    deadline = happened + response.notice - margin
    if is_late(response, happened, now) and alive:
        return max(deadline, now + LATE_GRACE)
    return deadline


def annotations_to_set(existing: Mapping[str, str], *, happened: datetime, deadline: datetime | None) -> dict[str, str]:
    """The annotations that a claim lacks. Times only ever become earlier; empty when all is there."""
    wanted: dict[str, str] = {}
    if existing.get(DRAIN_OWNER) != OWNER:
        wanted[DRAIN_OWNER] = OWNER
    for name, moment in ((TERMINATION_TIMESTAMP, deadline), (INTERRUPTED_AT, happened)):
        if moment is None:
            continue
        known = _time(existing.get(name, ""), name)
        text = format_time(moment)
        if known is None or parse_time(text, name) < known:
            wanted[name] = text
    return wanted


def is_doomed(annotations: Mapping[str, str]) -> bool:
    """Whether the drain of the claim with these annotations is ours."""
    return annotations.get(DRAIN_OWNER) == OWNER


def _time(value: str, name: str) -> datetime | None:
    # What somebody wrote by hand and cannot be read is no deadline: it is replaced.
    try:
        return parse_time(value, name) if value else None
    except ManifestError:
        return None
