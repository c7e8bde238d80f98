"""Queue messages: the text of one, read into what it says. Pure: it decides nothing and knows no clock.

EventBridge wraps what happened in an envelope; the pair of source and detail-type says how to read its `detail`. What
is well-formed but of no interest is a notice of kind NO_OP; what cannot be read is Malformed, with a word for why.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated

import msgspec


class Kind(StrEnum):
    """What a message is about; the value of the metric label `message_type`."""

    SPOT_INTERRUPTED = "spot_interrupted"
    REBALANCE_RECOMMENDATION = "rebalance_recommendation"
    INSTANCE_STOPPED = "instance_stopped"
    INSTANCE_TERMINATED = "instance_terminated"
    SCHEDULED_CHANGE = "scheduled_change"
    CAPACITY_RESERVATION_INTERRUPTED = "capacity_reservation_interrupted"
    NO_OP = "no_op"


class Why(StrEnum):
    """Why a message cannot be read; the value of the metric label `reason`."""

    EMPTY = "empty"
    NOT_JSON = "not_json"
    NO_ENVELOPE = "no_envelope"  # JSON, but no event of EventBridge
    BAD_ENVELOPE = "bad_envelope"  # a field of the envelope has the wrong type; also an unreadable time
    BAD_DETAIL = "bad_detail"  # the kind is known and its detail is missing or unreadable


@dataclass(frozen=True, slots=True)
class Notice:
    """What a message says.

    `time` is when it happened by the sender's clock, None when the envelope has none. `envelope_id` is empty when the
    envelope has none. `action` is what will be done to the instance (terminate, stop, hibernate), where it is said.
    """

    kind: Kind
    instance_ids: tuple[str, ...] = ()
    time: datetime | None = None
    envelope_id: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class Malformed:
    """A message that cannot be read. `detail` is for a person."""

    why: Why
    detail: str


_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
_Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class _Envelope(msgspec.Struct, frozen=True, rename={"detail_type": "detail-type"}):
    source: str = ""
    detail_type: str = ""
    version: str = "0"
    id: str = ""
    time: _Moment | None = None
    detail: msgspec.Raw = msgspec.Raw(b"null")


class _Instance(msgspec.Struct, frozen=True, rename="kebab"):
    instance_id: _Id
    instance_action: str = ""


class _StateChange(msgspec.Struct, frozen=True, rename="kebab"):
    instance_id: _Id
    state: str


class _Entity(msgspec.Struct, frozen=True, rename="camel"):
    entity_value: _Id


class _Health(msgspec.Struct, frozen=True, rename="camel"):
    service: str = ""
    event_type_category: str = ""
    affected_entities: tuple[_Entity, ...] = ()


@dataclass(frozen=True, slots=True)
class _Said:
    """What a detail adds to its envelope."""

    kind: Kind
    instance_ids: tuple[str, ...] = ()
    action: str = ""


_NOTHING = _Said(Kind.NO_OP)

_STATES: Mapping[str, Kind] = {
    "stopping": Kind.INSTANCE_STOPPED,
    "stopped": Kind.INSTANCE_STOPPED,
    "shutting-down": Kind.INSTANCE_TERMINATED,
    "terminated": Kind.INSTANCE_TERMINATED,
}


def _one_instance(kind: Kind) -> Callable[[msgspec.Raw], _Said]:
    def read(detail: msgspec.Raw) -> _Said:
        said = msgspec.json.decode(detail, type=_Instance)
        return _Said(kind, (said.instance_id,), said.instance_action)

    return read


def _state_change(detail: msgspec.Raw) -> _Said:
    said = msgspec.json.decode(detail, type=_StateChange)
    kind = _STATES.get(said.state.lower())
    return _Said(kind, (said.instance_id,)) if kind is not None else _NOTHING


def _health(detail: msgspec.Raw) -> _Said:
    said = msgspec.json.decode(detail, type=_Health)
    if said.service.upper() != "EC2" or said.event_type_category.lower() != "scheduledchange":
        return _NOTHING
    ids = tuple(dict.fromkeys(each.entity_value for each in said.affected_entities))
    return _Said(Kind.SCHEDULED_CHANGE, ids)


_READERS: Mapping[tuple[str, str], Callable[[msgspec.Raw], _Said]] = {
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _one_instance(Kind.SPOT_INTERRUPTED),
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _one_instance(Kind.REBALANCE_RECOMMENDATION),
    ("aws.ec2", "EC2 Instance State-change Notification"): _state_change,
    ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"): _one_instance(
        Kind.CAPACITY_RESERVATION_INTERRUPTED
    ),
    ("aws.health", "AWS Health Event"): _health,
}


def parse(body: str) -> Notice | Malformed:
    """Read the text of a message. Never raises.

    An envelope without a version counts as version 0; with another one it is a no-op, since its detail may mean
    anything.
    """
    if not body.strip():
        return Malformed(Why.EMPTY, "the body is empty")
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except msgspec.ValidationError as err:
        return Malformed(Why.BAD_ENVELOPE, str(err))
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        return Malformed(Why.NOT_JSON, str(err))
    if not envelope.source and not envelope.detail_type:
        return Malformed(Why.NO_ENVELOPE, "it has neither source nor detail-type")
    reader = _READERS.get((envelope.source, envelope.detail_type))
    if reader is None or envelope.version != "0":
        return Notice(Kind.NO_OP, time=envelope.time, envelope_id=envelope.id)
    try:
        said = reader(envelope.detail)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as err:
        return Malformed(Why.BAD_DETAIL, f"detail of {envelope.detail_type!r}: {err}")
    return Notice(said.kind, said.instance_ids, envelope.time, envelope.id, said.action)
