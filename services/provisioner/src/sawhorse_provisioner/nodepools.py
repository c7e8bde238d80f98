"""NodePool status: valid, its NodeClass ready, what it uses, and the hash that drift is judged by."""

import re
from collections.abc import Iterable

import structlog

from sawhorse_kube.errors import ConflictError, NotFoundError
from sawhorse_kube.kinds import NODECLAIM, NODEPOOL
from sawhorse_model.labels import HOSTNAME, NODEPOOL_HASH, NODEPOOL_HASH_VERSION, WELL_KNOWN, in_domain, normalize
from sawhorse_model.labels import NODEPOOL as NODEPOOL_LABEL
from sawhorse_model.meta import find_condition, is_true
from sawhorse_model.nodeclass import NodeClass
from sawhorse_model.nodepool import NodePool
from sawhorse_model.requirements import NUMERIC, Operator, Requirement, RequirementSpec
from sawhorse_model.resources import CPU, EPHEMERAL_STORAGE, MEMORY, NODES, PODS, format_resource, format_resources
from sawhorse_provisioner.claims import HASH_VERSION, pool_hash
from sawhorse_provisioner.cluster_state import ClusterState
from sawhorse_provisioner.instruments import Instruments
from sawhorse_provisioner.pool_health import PoolHealth
from sawhorse_provisioner.pool_types import INSTANCE_TYPES_AVAILABLE, NO_COMPATIBLE_INSTANCE_TYPES
from sawhorse_provisioner.snapshots import pool_usage
from sawhorse_provisioner.words import NodeClassWords
from sawhorse_provisioner.writes import Judgement, Writer

log = structlog.get_logger(__name__)

VALIDATION_SUCCEEDED = "ValidationSucceeded"
NODE_CLASS_READY = "NodeClassReady"
DEPENDENTS = (VALIDATION_SUCCEEDED, NODE_CLASS_READY)

_ALWAYS = (CPU, MEMORY, PODS, EPHEMERAL_STORAGE, NODES)
_RESYNC = 60.0
_CONFLICT_RETRY = 0.2
_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_LONGEST_VALUE = 63


class NodePools:
    """Handles pools by name; `look` is a KeyedQueue handler."""

    def __init__(
        self,
        *,
        writer: Writer,
        state: ClusterState,
        words: NodeClassWords,
        health: PoolHealth,
        instruments: Instruments,
    ) -> None:
        self._writer = writer
        self._state = state
        self._words = words
        self._health = health
        self._instruments = instruments

    async def look(self, name: str) -> float | None:
        """Judge one pool; returns seconds until the next look."""
        pool = self._state.pool(name)
        if pool is None or pool.meta.is_deleting:
            self._health.forget(name)
            return None
        try:
            await self._stamp(pool)
            await self._judge(self._state.pool(name) or pool)
        except ConflictError:
            return _CONFLICT_RETRY
        except NotFoundError:
            return None
        return _RESYNC

    async def _stamp(self, pool: NodePool) -> None:
        """The hash annotations, on the pool, and on claims that carry another version's."""
        wanted = {NODEPOOL_HASH: pool_hash(pool), NODEPOOL_HASH_VERSION: HASH_VERSION}
        if any(pool.meta.annotations.get(k) != v for k, v in wanted.items()):
            await self._writer.annotate(NODEPOOL, pool, wanted)
        for claim in self._state.claims_of_pool(pool.meta.name):
            version = claim.meta.annotations.get(NODEPOOL_HASH_VERSION)
            if version in (None, HASH_VERSION) or claim.meta.is_deleting:
                continue
            # Hashes of two versions cannot be compared: a claim is as drifted as it was judged to be.
            drifted = is_true(claim.conditions, "Drifted")
            stamp = {NODEPOOL_HASH_VERSION: HASH_VERSION} if drifted else wanted
            try:
                await self._writer.annotate(NODECLAIM, claim, stamp)
            except NotFoundError:
                continue

    async def _judge(self, pool: NodePool) -> None:
        problems = validate_pool(pool, self._words)
        valid = (
            Judgement(VALIDATION_SUCCEEDED, "False", "NodePoolValidationFailed", "; ".join(problems))
            if problems
            else Judgement(VALIDATION_SUCCEEDED, "True")
        )
        node_class = self._state.node_class(pool.template.node_class_ref.name)
        usage = dict.fromkeys(_ALWAYS, 0) | pool_usage(self._state, pool.meta.name)
        extra: dict[str, object] = {}
        if dict(pool.resources) != usage:
            # A resource that went to nothing must not stay in a merge patch.
            gone = dict.fromkeys(pool.resources.keys() - usage.keys())
            extra = {"resources": {**format_resources(usage), **gone}, "nodes": usage[NODES]}
        if node_class is not None and node_class.meta.generation != pool.node_class_observed_generation:
            extra["nodeClassObservedGeneration"] = node_class.meta.generation
        self._measure(pool, usage)
        judgements = [valid, class_judgement(pool, node_class), self._health.judgement(pool, node_class)]
        empty = self._state.pool_types.why_empty(pool.meta.name)
        if empty is not None:  # says something, and stops nobody: offerings come back by themselves
            status = "False" if empty else "True"
            reason = NO_COMPATIBLE_INSTANCE_TYPES if empty else INSTANCE_TYPES_AVAILABLE
            judgements.append(Judgement(INSTANCE_TYPES_AVAILABLE, status, reason, empty))
        await self._writer.judge(NODEPOOL, pool, judgements, dependents=DEPENDENTS, extra_status=extra)

    def _measure(self, pool: NodePool, usage: dict[str, int]) -> None:
        for gauge, amounts in ((self._instruments.pool_usage, usage), (self._instruments.pool_limit, pool.limits)):
            for resource, amount in amounts.items():
                gauge.labels(pool.meta.name, resource).set(amount / 1000 if resource == CPU else amount)


def class_judgement(pool: NodePool, node_class: NodeClass | None) -> Judgement:
    """Whether the pool's NodeClass can be launched from."""
    name = pool.template.node_class_ref.name
    if node_class is None:
        return Judgement(NODE_CLASS_READY, "False", "NodeClassNotFound", f"NodeClass {name} does not exist")
    if node_class.meta.is_deleting:
        return Judgement(NODE_CLASS_READY, "False", "NodeClassTerminating", f"NodeClass {name} is being deleted")
    if node_class.is_ready:
        return Judgement(NODE_CLASS_READY, "True")
    ready = find_condition(node_class.conditions, "Ready")
    if ready is None or ready.status != "False":
        message = f"NodeClass {name} has not been judged yet"
        return Judgement(NODE_CLASS_READY, "False", "NodeClassReadinessUnknown", message)
    return Judgement(NODE_CLASS_READY, "False", ready.reason, ready.message)


def validate_pool(pool: NodePool, words: NodeClassWords) -> list[str]:
    """What is wrong with a pool beyond its schema, one line each: where, what, what to do."""
    problems: list[str] = []
    for key, value in pool.template.labels.items():
        where = f"spec.template.metadata.labels[{key}]"
        problems += _key_problems(key, where, words)
        if len(value) > _LONGEST_VALUE or not _VALUE.fullmatch(value):
            problems.append(f"{where}: {value!r} is not a label value; use letters, digits, dash, dot or underscore")
    for index, spec in enumerate(pool.template.requirements):
        where = f"spec.template.spec.requirements[{index}]"
        problems += _key_problems(spec.key, where, words)
        problems += _value_problems(spec, where, words)
    problems += _taint_problems(pool)
    for name, amount in pool.limits.items():
        if amount < 0:
            problems.append(f"spec.limits.{name}: {format_resource(name, amount)} is negative; use zero or more")
    return problems


def _key_problems(key: str, where: str, words: NodeClassWords) -> list[str]:
    key = normalize(key)
    if key == HOSTNAME:
        return [f"{where}: {HOSTNAME} is each node's own; remove it"]
    if key == NODEPOOL_LABEL:
        return [f"{where}: {key} is set by the autoscaler; remove it"]
    if key in WELL_KNOWN or key in words.well_known:
        return []
    if in_domain(key, "karpenter.sh") or in_domain(key, words.kind.group):
        return [f"{where}: {key} is in a reserved domain; use a label of your own domain"]
    return []


def _value_problems(spec: RequirementSpec, where: str, words: NodeClassWords) -> list[str]:
    if spec.operator is Operator.IN and not spec.values:
        return [f"{where}: operator In needs at least one value"]
    if spec.operator is Operator.IN:
        # Of some labels all values are known: what is none of them does not count.
        closed = words.closed_values.get(normalize(spec.key))
        usable = len(set(spec.values) & closed) if closed is not None else len(set(spec.values))
        if closed is not None and not usable:
            return [f"{where}: {spec.key} has none of the values {', '.join(spec.values)}; use {_choice(closed)}"]
        if usable < (spec.min_values or 0):
            return [f"{where}: minValues is {spec.min_values}, {usable} usable values are listed; list more"]
    if spec.operator in NUMERIC:
        try:
            Requirement.from_spec(spec)
        except ValueError as error:
            return [f"{where}: {error}"]
        return []
    return [
        f"{where}: {value!r} is not a label value; use letters, digits, dash, dot or underscore"
        for value in spec.values
        if len(value) > _LONGEST_VALUE or not _VALUE.fullmatch(value)
    ]


def _choice(values: Iterable[str]) -> str:
    return " or ".join(sorted(values))


def _taint_problems(pool: NodePool) -> list[str]:
    """Taints that are no qualified names, and pairs of key and effect that occur twice in the two lists together."""
    problems: list[str] = []
    first: dict[tuple[str, str], str] = {}
    lists = (("taints", pool.template.taints), ("startupTaints", pool.template.startup_taints))
    for name, taints in lists:
        for index, taint in enumerate(taints):
            where = f"spec.template.spec.{name}[{index}]"
            for field, text in (("key", taint.key), ("value", taint.value)):
                last = text.rpartition("/")[2]
                if len(last) > _LONGEST_VALUE or (text and not (last and _VALUE.fullmatch(last))):
                    problems.append(f"{where}.{field}: {text!r} is not a qualified name; use at most 63 letters")
            before = first.setdefault((taint.key, taint.effect), where)
            if before != where:
                problems.append(f"{where}: duplicate taint {taint.key}:{taint.effect}, also in {before}; remove one")
    return problems
