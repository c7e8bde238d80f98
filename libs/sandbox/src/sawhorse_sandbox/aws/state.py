"""What the sandbox's AWS can be told to do: the state behind `/sandbox/state`, its reading and its checks.

Field names in JSON are camelCase. An update names the fields to replace, each as a whole; the others stay.
"""

import fnmatch
import math
import threading
from typing import Any

import msgspec
from msgspec.structs import replace

ANY = "*"
CAPACITY_TYPES = (ANY, "spot", "on-demand")


class StateError(Exception):
    """An update of the state that makes no sense; the text is one line that names the field."""


class OutOfCapacity(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Pools that refuse launches. `type` and `zone` are globs; `remaining` instances can still be had from the rule."""

    type: str = ANY
    zone: str = ANY
    capacity_type: str = ANY
    remaining: int = 0
    code: str = "InsufficientInstanceCapacity"
    message: str = ""  # empty: the text that EC2 gives for InsufficientInstanceCapacity

    def matches(self, instance_type: str, zone: str, capacity_type: str) -> bool:
        """Return whether the rule is about this pool."""
        return (
            fnmatch.fnmatchcase(instance_type, self.type)
            and fnmatch.fnmatchcase(zone, self.zone)
            and self.capacity_type in (ANY, capacity_type)
        )


class InjectedError(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The next `times` calls of `action` fail with this code."""

    action: str
    code: str
    message: str = "injected by the sandbox"
    times: int = 1
    status: int = 400


class Reservation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A capacity reservation of the account."""

    id: str
    type: str
    zone: str
    count: int
    state: str = "active"
    match: str = "targeted"  # or "open"
    kind: str = "default"  # or "capacity-block"
    interruptible: bool = False
    end: str | None = None  # RFC 3339
    tags: dict[str, str] = {}


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """All that can be switched. Delays and latencies in seconds, prices per hour, probabilities 0 to 1."""

    out_of_capacity: tuple[OutOfCapacity, ...] = ()
    latency: dict[str, float] = {}  # by action, or "*" for those not named
    throttle: dict[str, float] = {}  # likewise
    errors: tuple[InjectedError, ...] = ()
    on_demand_prices: dict[str, float] = {}  # by instance type
    spot_prices: dict[str, float] = {}  # by "type/zone", or "type" for all its zones
    reservations: tuple[Reservation, ...] = ()
    placement_groups: tuple[dict[str, Any], ...] = ()  # as DescribePlacementGroups gives them
    full_subnets: tuple[str, ...] = ()  # ids; no free address, for launches and in DescribeSubnets
    dying: int = 0  # so many of the next instances end by themselves right after they run
    pending_delay: float = 0.5  # from launch to running
    terminate_delay: float = 1.0  # from shutting-down to terminated


FIELDS = tuple(field.encode_name for field in msgspec.structs.fields(State))


def updated(state: State, body: bytes) -> State:
    """Return the state with the fields of a JSON object replaced.

    Raises:
        StateError: not a JSON object, an unknown field, or a value that makes no sense.
    """
    try:
        update = msgspec.json.decode(body)
    except msgspec.DecodeError as err:
        raise StateError(f"the body is not JSON: {err}") from err
    if not isinstance(update, dict):
        raise StateError("the body must be a JSON object")
    if unknown := sorted(set(update) - set(FIELDS)):
        raise StateError(f"unknown field {', '.join(unknown)}; known are {', '.join(FIELDS)}")
    try:
        result = msgspec.convert(msgspec.to_builtins(state) | update, State)
    except msgspec.ValidationError as err:
        raise StateError(str(err)) from err
    _check(result)
    return result


def _check(state: State) -> None:
    for action, probability in state.throttle.items():
        if not 0 <= probability <= 1:
            raise StateError(f"throttle.{action}: {probability} is not a probability between 0 and 1")
    seconds = {f"latency.{action}": value for action, value in state.latency.items()}
    seconds |= {"pendingDelay": state.pending_delay, "terminateDelay": state.terminate_delay}
    prices = {f"onDemandPrices.{name}": value for name, value in state.on_demand_prices.items()}
    prices |= {f"spotPrices.{name}": value for name, value in state.spot_prices.items()}
    for field, value in (seconds | prices).items():
        if not (math.isfinite(value) and value >= 0):
            raise StateError(f"{field}: {value} must be finite and not negative")
    for position, rule in enumerate(state.out_of_capacity):
        if rule.capacity_type not in CAPACITY_TYPES:
            known = ", ".join(CAPACITY_TYPES)
            raise StateError(f"outOfCapacity[{position}].capacityType: {rule.capacity_type!r} is none of {known}")
        if rule.remaining < 0:
            raise StateError(f"outOfCapacity[{position}].remaining: {rule.remaining} must not be negative")
    for position, error in enumerate(state.errors):
        if error.times < 1:
            raise StateError(f"errors[{position}].times: {error.times} must be at least 1")
        if not 400 <= error.status <= 599:
            raise StateError(f"errors[{position}].status: {error.status} is not an HTTP error status")
    if state.dying < 0:
        raise StateError(f"dying: {state.dying} must not be negative")
    for position, reservation in enumerate(state.reservations):
        if reservation.count < 0:
            raise StateError(f"reservations[{position}].count: {reservation.count} must not be negative")


class StateStore:
    """Holds the state of the running server. Safe to use from any thread; readers get one consistent value."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = State()

    def current(self) -> State:
        """Return the state as it is now."""
        return self._state

    def update(self, body: bytes) -> State:
        """Apply a partial update and return the whole; raises StateError and changes nothing when it makes no sense."""
        with self._lock:
            self._state = updated(self._state, body)
            return self._state

    def take_error(self, action: str) -> InjectedError | None:
        """Return the error that the next call of `action` must answer, and count it down."""
        with self._lock:
            for position, error in enumerate(self._state.errors):
                if error.action in (ANY, action):
                    rest = (replace(error, times=error.times - 1),) if error.times > 1 else ()
                    errors = self._state.errors[:position] + rest + self._state.errors[position + 1 :]
                    self._state = replace(self._state, errors=errors)
                    return error
        return None

    def take_death(self) -> bool:
        """Whether the instance that is being launched is one that ends by itself; counts it down."""
        with self._lock:
            if not self._state.dying:
                return False
            self._state = replace(self._state, dying=self._state.dying - 1)
            return True

    def take_capacity(self, rule: OutOfCapacity, count: int) -> None:
        """Lower what a rule with `remaining` can still give."""
        with self._lock:
            rules = tuple(
                replace(each, remaining=max(0, each.remaining - count)) if each == rule else each
                for each in self._state.out_of_capacity
            )
            self._state = replace(self._state, out_of_capacity=rules)


def by_action(values: dict[str, float], action: str) -> float:
    """Return the value for an action, else the one for `*`, else 0."""
    return values.get(action, values.get(ANY, 0.0))
