"""Workloads with every kind of scheduling rule, some 560 pods in two namespaces. Pure: rows in, manifests out.

Each row is named after the rule that it is about; `around` holds what pods lean on: pools, volumes, runtime class,
namespaces, DaemonSets. Pods are larger than they need be, so that a plan for them is tight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sawhorse_model.labels import CAPACITY_TYPE, HOSTNAME, ZONE

ARCH = "kubernetes.io/arch"
CATEGORY = "karpenter.k8s.aws/instance-category"
GENERATION = "karpenter.k8s.aws/instance-generation"
NEAR, FAR = "agree-near", "agree-far"
AGENT_TAINT = "example.com/agent"  # a startup taint, which the node's agent lifts
DEDICATED, SOFT = "example.com/dedicated", "example.com/soft"
RUNTIME = "sandboxed"
WAITING, REGIONAL = "waits", "waits-in-two-zones"
DRIVER = "ebs.csi.aws.com"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A workload: `spec` and `volumes` are added to its pods' spec."""

    name: str
    replicas: int
    cpu: str
    memory: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = NEAR
    kind: str = "Deployment"
    labels: Mapping[str, str] = field(default_factory=dict)
    templates: Sequence[Json] = ()  # volume claims of a StatefulSet

    def manifest(self) -> Json:
        """Its Deployment or StatefulSet."""
        labels = {"app": self.name, **self.labels}
        requests = {"cpu": self.cpu, "memory": self.memory}
        container: Json = {"name": "app", "image": "example.test/app", "resources": {"requests": requests}}
        extra = dict(self.spec)
        container |= extra.pop("container", {})
        container["resources"]["limits"] = container.pop("limits", {})
        spec: Json = {
            "replicas": self.replicas,
            "selector": {"matchLabels": {"app": self.name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [container], **extra},
            },
        }
        if self.kind == "StatefulSet":
            spec |= {"serviceName": self.name, "podManagementPolicy": "Parallel"}
            spec["volumeClaimTemplates"] = list(self.templates)
        return {"kind": self.kind, "metadata": {"name": self.name, "namespace": self.namespace}, "spec": spec}


def apps(*names: str) -> Json:
    """A selector of these workloads' pods."""
    return {"matchExpressions": [{"key": "app", "operator": "In", "values": list(names)}]}


def spread(name: str, key: str, **more: Any) -> Json:
    """A spread of a workload's own pods."""
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": apps(name)}
    return {"topologySpreadConstraints": [rule | more]}


def near(key: str, *names: str, wish: int = 0, **more: Any) -> Json:
    """A wish (with a weight) or demand to be where these workloads are."""
    return {"affinity": {"podAffinity": _terms(key, names, wish, more)}}


def apart(key: str, *names: str, wish: int = 0, **more: Any) -> Json:
    """A wish (with a weight) or demand to be where these workloads are not."""
    return {"affinity": {"podAntiAffinity": _terms(key, names, wish, more)}}


def _terms(key: str, names: Sequence[str], wish: int, more: Mapping[str, Any]) -> Json:
    term = {"topologyKey": key, "labelSelector": apps(*names), **more}
    if wish:
        return {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": wish, "podAffinityTerm": term}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def on_nodes(*terms: Json) -> Json:
    """A demand for nodes that one of the terms describes: key → values."""
    found = [{"matchExpressions": [_in(k, *v) for k, v in term.items()]} for term in terms]
    rule = {"nodeSelectorTerms": found}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": rule}}}


def wish_for_nodes(*terms: tuple[int, Json]) -> Json:
    """A wish for nodes: weight, and key → values."""
    found = [
        {"weight": weight, "preference": {"matchExpressions": [_in(k, *v) for k, v in term.items()]}}
        for weight, term in terms
    ]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": found}}}


def _in(key: str, *values: str) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


def tolerate(key: str, **more: str) -> Json:
    """A toleration."""
    return {"tolerations": [{"key": key, "operator": "Exists", **more}]}


def zones(region: str, *letters: str) -> list[str]:
    """Names of zones."""
    return [f"{region}{letter}" for letter in letters]


def rows(region: str, *, spread_part: int = 1) -> tuple[Row, ...]:
    """The workloads.

    Args:
        spread_part: of pods that are spread hard over a label of many nodes, only one in so many; plain ones instead.
            These are the pods that cannot all be hinted at once.
    """
    a, b, c = zones(region, "a", "b", "c")
    whole = _spreads(a, b, c)
    spreads = tuple(replace(row, replicas=min(row.replicas, max(4, row.replicas // spread_part))) for row in whole)
    plain = Row("plain", 70 + sum(r.replicas for r in whole) - sum(r.replicas for r in spreads), "250m", "500Mi")
    return (plain, *_node_rules(a, b), *spreads, *_relations(), *_kinds_of_pods(), *_with_volumes())


def _node_rules(a: str, b: str) -> tuple[Row, ...]:
    return (
        Row("large", 14, "1700m", "3000Mi"),
        Row("memory", 20, "200m", "3500Mi"),
        Row("selector", 30, "400m", "700Mi", {"nodeSelector": {ARCH: "arm64"}}),
        Row("or-terms", 30, "500m", "900Mi", on_nodes({ZONE: [a], ARCH: ["amd64"]}, {ZONE: [b], ARCH: ["arm64"]})),
        Row("prefers", 24, "350m", "600Mi", wish_for_nodes((50, {ZONE: [b]}), (10, {CATEGORY: ["c"]}))),
        Row("prefers-what-is-not", 10, "350m", "600Mi", wish_for_nodes((90, {ZONE: ["nowhere"]}))),
        Row("on-demand", 12, "600m", "1Gi", {"nodeSelector": {CAPACITY_TYPE: "on-demand"}}),
        Row("tolerant", 24, "450m", "800Mi", tolerate(DEDICATED) | {"nodeSelector": {DEDICATED: "batch"}}),
        Row("tolerant-or-not", 12, "300m", "500Mi", tolerate(DEDICATED, effect="NoSchedule")),
        Row("soft-taint", 16, "400m", "700Mi", {"nodeSelector": {SOFT: "yes"}}),
        Row("agents", 16, "300m", "600Mi", {"nodeSelector": {AGENT_TAINT: "yes"}}),
    )


def _spreads(a: str, b: str, c: str) -> tuple[Row, ...]:
    few = on_nodes({ZONE: [a, b, c]})
    return (
        Row("zones", 30, "300m", "500Mi", spread("zones", ZONE)),
        Row("zones-at-least", 8, "300m", "500Mi", spread("zones-at-least", ZONE, minDomains=3, maxSkew=2)),
        Row("zones-of-three", 18, "250m", "400Mi", few | spread("zones-of-three", ZONE, nodeAffinityPolicy="Honor")),
        Row(
            "zones-by-template",
            12,
            "250m",
            "400Mi",
            spread("zones-by-template", ZONE, matchLabelKeys=["pod-template-hash"]),
        ),
        Row("hosts", 10, "200m", "300Mi", spread("hosts", HOSTNAME, maxSkew=2, nodeTaintsPolicy="Honor")),
        Row("zones-wished", 12, "200m", "300Mi", spread("zones-wished", ZONE, whenUnsatisfiable="ScheduleAnyway")),
        Row("capacity-types", 8, "300m", "400Mi", spread("capacity-types", CAPACITY_TYPE)),
    )


def _relations() -> tuple[Row, ...]:
    far: Json = {"namespaceSelector": {"matchLabels": {"team": "far"}}}
    return (
        Row("together", 12, "300m", "500Mi", near(ZONE, "together")),
        Row("cache", 6, "300m", "1Gi", apart(HOSTNAME, "cache"), namespace=FAR),
        Row("by-the-cache", 12, "200m", "300Mi", near(HOSTNAME, "cache", namespaces=[FAR])),
        Row("in-its-zone", 8, "200m", "300Mi", near(ZONE, "cache", **far)),
        Row("alone", 8, "300m", "400Mi", apart(HOSTNAME, "alone")),
        Row("a-zone-each", 3, "300m", "400Mi", apart(ZONE, "a-zone-each")),
        Row("not-with-alone", 10, "200m", "300Mi", apart(HOSTNAME, "alone")),
        Row("shy", 10, "250m", "400Mi", apart(HOSTNAME, "shy", wish=100)),
        Row("sociable", 10, "250m", "400Mi", near(ZONE, "plain", wish=60)),
        Row("far-shy", 6, "250m", "400Mi", apart(ZONE, "far-shy", wish=20), namespace=FAR),
    )


def _kinds_of_pods() -> tuple[Row, ...]:
    sidecar = {
        "name": "proxy",
        "image": "example.test/proxy",
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "150m", "memory": "200Mi"}},
    }
    first = {
        "name": "migrate",
        "image": "example.test/migrate",
        "resources": {"requests": {"cpu": "700m", "memory": "300Mi"}},
    }
    ports = {"ports": [{"containerPort": 8080, "hostPort": 8080}]}
    other = {"ports": [{"containerPort": 8080, "hostPort": 8080, "hostIP": "127.0.0.1"}]}
    return (
        Row("sidecar", 12, "200m", "300Mi", {"initContainers": [sidecar]}),
        Row("init", 10, "250m", "400Mi", {"initContainers": [sidecar, first]}),
        Row("overhead", 12, "200m", "300Mi", {"runtimeClassName": RUNTIME}),
        Row("port", 6, "150m", "200Mi", {"container": ports}),
        Row("port-on-loopback", 4, "150m", "200Mi", {"container": other}),
        Row(
            "device", 2, "500m", "1Gi", {"container": {"limits": {"nvidia.com/gpu": "1"}}} | tolerate("nvidia.com/gpu")
        ),
    )


def _with_volumes() -> tuple[Row, ...]:
    return (
        *(Row(f"bound-{n}", 1, "250m", "400Mi", _mounting(f"bound-{n}")) for n in range(4)),
        Row("shared", 4, "200m", "300Mi", _mounting("shared")),
        Row("shared-unbound", 4, "200m", "300Mi", _mounting("shared-unbound")),
        Row("waits", 8, "250m", "400Mi", spread("waits", ZONE), kind="StatefulSet", templates=(_template(WAITING),)),
        Row("waits-in-two", 6, "250m", "400Mi", kind="StatefulSet", templates=(_template(REGIONAL),)),
        Row("ephemeral", 6, "200m", "300Mi", {"volumes": [_ephemeral()]}),
    )


def _mounting(claim: str) -> Json:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


def _claim_spec(storage_class: str) -> Json:
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": "1Gi"}},
    }


def _template(storage_class: str) -> Json:
    return {"metadata": {"name": "data"}, "spec": _claim_spec(storage_class)}


def _ephemeral() -> Json:
    return {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": _claim_spec(WAITING)}}}
