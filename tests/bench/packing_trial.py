"""How near the lowest price the packing engine comes and how fast: one JSON line per benchmark workload.

`python tests/bench/packing_trial.py [WORKLOAD…] [--fixed-cost F] [--repeat N]`. It reads the files in `data` with a
minimal reader of its own and knows of Kubernetes only what they contain: what is measured is the engine alone, without
the planner in front of it. `million` is `plain-ondemand` with a hundred times the replicas. Best of N runs.
"""

import argparse
import json
import os
import re
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from sawhorse_scheduling.packing import NodeGroup, PackingProblem, pack

DATA = Path(__file__).parent / "data"
CATALOGUES = {"plain": "cmr", "constrained": "cmr", "openb": "gpu", "diverse": "diverse", "million": "cmr"}
# Karpenter's price per hour on the same input, measured once with its own scheduler.
KARPENTER = {
    "plain-ondemand": 428.77,
    "plain-spot": 138.61,
    "constrained-ondemand": 434.02,
    "constrained-spot": 286.92,
    "openb-ondemand": 13366.44,
    "openb-spot": 3845.26,
}
WORKLOADS = (*KARPENTER, "diverse-5000", "diverse-20000", "million")
GPU = "nvidia.com/gpu"
ZONE, CAPACITY_TYPE, ARCH = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type", "kubernetes.io/arch"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
UNITS = {"": 1, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 10**3, "M": 10**6, "G": 10**9}


def amount(resource: str, text: str) -> int:
    """A quantity: cpu in millicores, anything else in whole units."""
    if text.endswith("m"):
        return int(text[:-1]) if resource == "cpu" else -(-int(text[:-1]) // 1000)
    match = re.fullmatch(r"(\d+)([A-Za-z]*)", text)
    assert match is not None, text
    value = int(match[1]) * UNITS[match[2]]
    return value * 1000 if resource == "cpu" else value


@dataclass(frozen=True)
class PodClass:
    """Pods with equal demands. `shared` names a limit per node that it shares with others of that name."""

    requests: dict[str, str]
    count: int
    selector: dict[str, str] = field(default_factory=dict)
    shared: tuple[str, int] | None = None


def read_classes(items: list[dict[str, Any]], zones: list[str], scale: int) -> list[PodClass]:
    """Classes of all Deployments; zone spread becomes one class for each zone, zone affinity the first zone."""
    found = []
    turn: dict[str, int] = defaultdict(int)
    for item in items:
        if item["kind"] != "Deployment":
            continue
        spec = item["spec"]["template"]["spec"]
        requests = spec["containers"][0]["resources"]["requests"]
        pods = PodClass(requests, item["spec"]["replicas"] * scale, dict(spec.get("nodeSelector", {})))
        affinity = spec.get("affinity", {})
        for term in affinity.get("podAntiAffinity", {}).get(REQUIRED, []):
            pods = replace(pods, shared=("anti " + json.dumps(term["labelSelector"], sort_keys=True), 1))
        for _ in affinity.get("podAffinity", {}).get(REQUIRED, []):
            pods = replace(pods, selector=pods.selector | {ZONE: zones[0]})
        split = ""
        for spread in spec.get("topologySpreadConstraints", []):
            selector = json.dumps(spread["labelSelector"], sort_keys=True)
            if spread["topologyKey"] == ZONE:
                split = selector
            else:
                pods = replace(pods, shared=("spread " + selector, spread["maxSkew"]))
        if not split:
            found.append(pods)
            continue
        for number, zone in enumerate(zones):
            extra = (number - turn[split]) % len(zones) < pods.count % len(zones)
            part = pods.count // len(zones) + extra
            if part:
                found.append(replace(pods, count=part, selector=pods.selector | {ZONE: zone}))
        turn[split] = (turn[split] + pods.count) % len(zones)
    return found


def read_problem(workload: str) -> PackingProblem:
    """The packing problem of a workload file and its catalogue."""
    catalogue = json.loads((DATA / f"catalog-{CATALOGUES[workload.split('-')[0]]}.json").read_text())["instanceTypes"]
    million = workload == "million"
    items = json.loads((DATA / f"{'plain-ondemand' if million else workload}.json").read_text())["items"]
    pool = next(item for item in items if item["kind"] == "NodePool")
    terms = {term["key"]: term["values"] for term in pool["spec"]["template"]["spec"]["requirements"]}
    zones = sorted({offering["zone"] for kind in catalogue for offering in kind["offerings"]})
    classes = read_classes(items, zones, 100 if million else 1)
    resources = sorted({name for kind in catalogue for name in kind["allocatable"]})
    # A column for each type and for each zone and capacity type that any class tells apart.
    told_apart = [key for key in (ZONE, CAPACITY_TYPE) if any(key in pods.selector for pods in classes)]
    columns: dict[tuple[str, ...], tuple[float, dict[str, str], dict[str, str]]] = {}
    for kind in catalogue:
        for offering in kind["offerings"]:
            labels = {ZONE: offering["zone"], CAPACITY_TYPE: offering["capacityType"], ARCH: kind["architecture"]}
            if labels[CAPACITY_TYPE] not in terms[CAPACITY_TYPE] or not offering["available"]:
                continue
            key = (kind["name"], *(labels[each] for each in told_apart))
            if key not in columns or offering["price"] < columns[key][0]:
                columns[key] = offering["price"], kind["allocatable"], labels
    rows = list(columns.values())
    capacity = [[amount(name, has.get(name, "0")) for name in resources] for _, has, _ in rows]
    requests = [
        [1 if name == "pods" else amount(name, pods.requests.get(name, "0")) for name in resources] for pods in classes
    ]
    allowed = np.ones((len(classes), len(rows)), dtype=np.bool_)
    for label in (ZONE, CAPACITY_TYPE, ARCH):
        found = np.array([labels[label] for _, _, labels in rows])
        for number, pods in enumerate(classes):
            if label in pods.selector:
                allowed[number] &= found == pods.selector[label]
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for number, pods in enumerate(classes):
        if pods.shared is not None:
            groups[pods.shared].append(number)
    requests_array, capacity_array = np.array(requests, dtype=np.int64), np.array(capacity, dtype=np.int64)
    may_open = None
    if GPU in resources:
        at = resources.index(GPU)
        may_open = (requests_array[:, at] > 0)[:, None] | (capacity_array[:, at] == 0)[None, :]
    return PackingProblem(
        requests=requests_array,
        counts=np.array([pods.count for pods in classes], dtype=np.int64),
        columns_capacity=capacity_array,
        price=np.array([price for price, _, _ in rows]),
        allowed=allowed,
        groups=tuple(NodeGroup(tuple(members), limit) for (_, limit), members in groups.items()),
        may_open=may_open,
    )


def measure(workload: str, fixed_cost: float, repeat: int) -> dict[str, Any]:
    """Pack a workload; times are the best of all runs, in seconds of wall clock and of this process's CPU."""
    problem = read_problem(workload)
    walls, cpus, firsts = [], [], []
    for _ in range(repeat):
        wall, cpu = time.perf_counter(), time.process_time()

        def first(price: float, wall: float = wall) -> None:
            firsts.append(time.perf_counter() - wall)

        packing = pack(replace(problem, fixed_cost=fixed_cost, on_first=first))
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    karpenter = KARPENTER.get(workload)
    return {
        "workload": workload,
        "pods": int(problem.counts.sum()),
        "left": int(packing.leftover.sum()),
        "nodes": packing.node_count,
        "pricePerHour": round(packing.price, 2),
        "lowerBoundPerHour": None if packing.lower_bound is None else round(packing.lower_bound, 2),
        "gap": None if packing.gap is None else round(packing.gap, 4),
        "ofKarpenter": None if karpenter is None else round(packing.price / karpenter, 3),
        "firstPricePerHour": round(packing.first, 2),
        "firstSeconds": round(min(firsts), 3),
        "seconds": round(min(walls), 3),
        "cpuSeconds": round(min(cpus), 3),
        "work": packing.work,
    }


def main() -> None:
    """Measure the workloads asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--fixed-cost", type=float, default=0.01)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    for workload in arguments.workloads:
        print(json.dumps(measure(workload, arguments.fixed_cost, arguments.repeat)), flush=True)


if __name__ == "__main__":
    main()
