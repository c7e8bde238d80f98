"""The condition ValidationSucceeded of an EC2NodeClass: what of it cannot work, told before any machine is paid for.

Pure: it reads the NodeClass, what its look-ups found and the cluster's facts.
"""

from collections.abc import Callable, Sequence

from sawhorse_cloud_aws.boot import ClusterFacts
from sawhorse_cloud_aws.kubelet import kubelet_problems
from sawhorse_cloud_aws.launch_fields import connection_tracking
from sawhorse_cloud_aws.spec import INVALID, Misfit
from sawhorse_cloud_aws.user_data import (
    LARGEST_BYTES,
    build_user_data,
    unsupported,
    user_data_bytes,
    user_data_problem,
)
from sawhorse_model.aws import EC2NodeClass
from sawhorse_model.manifests.fields import ManifestError
from sawhorse_model.meta import Condition

VALIDATION = "ValidationSucceeded"
_OURS = frozenset(
    {"eks:eks-cluster-name", "karpenter.sh/nodepool", "karpenter.sh/nodeclaim", "karpenter.k8s.aws/ec2nodeclass"}
)


def validate(
    node_class: EC2NodeClass,
    misfits: Sequence[Misfit],
    dependencies: Sequence[Condition],
    cluster: ClusterFacts,
) -> Condition:
    """The condition, without time and generation. The first group of problems that is found is told, all of it.

    Args:
        misfits: fields that could not be read.
        dependencies: the conditions of the look-ups.
    """
    if misfits:
        return _bad(misfits[0].reason, "; ".join(m.message for m in misfits))
    for check in _BEFORE:
        if problem := check(node_class, cluster):
            return problem
    waiting = [c for c in dependencies if c.status != "True"]
    if waiting:
        status = "False" if any(c.status == "False" for c in waiting) else "Unknown"
        names = ", ".join(f"{c.type}={c.status}" for c in waiting)
        return Condition(VALIDATION, status, "DependenciesNotReady", names)
    for check in _AFTER:
        if problem := check(node_class, cluster):
            return problem
    return Condition(VALIDATION, "True", VALIDATION)


def _bad(reason: str, message: str) -> Condition:
    return Condition(VALIDATION, "False", reason, message)


def _check_support(node_class: EC2NodeClass, cluster: ClusterFacts) -> Condition | None:
    problem = unsupported(node_class)
    return _bad("NotSupported", problem) if problem else None


def _check_cluster(node_class: EC2NodeClass, cluster: ClusterFacts) -> Condition | None:
    if node_class.ami_family != "AL2023" or cluster.service_cidr:
        return None
    problem = "AL2023 nodes need the cluster's service range, which EKS did not tell; set --service-cidr"
    return _bad("ClusterCIDRResolutionFailed", problem)


def _check_kubelet(node_class: EC2NodeClass, cluster: ClusterFacts) -> Condition | None:
    problems = kubelet_problems(node_class)
    return _bad(problems[0].reason, "; ".join(p.message for p in problems)) if problems else None


def _check_connection_tracking(node_class: EC2NodeClass, cluster: ClusterFacts) -> Condition | None:
    try:
        connection_tracking(node_class)
    except ManifestError as error:
        return _bad(INVALID, str(error))
    return None


def _check_tags(node_class: EC2NodeClass, cluster: ClusterFacts) -> Condition | None:
    for key in node_class.tags:
        if not key:
            return _bad("TagValidationFailed", "spec.tags: a key is empty; remove it")
        if key in _OURS or key.startswith("kubernetes.io/cluster"):
            return _bad("TagValidationFailed", f"spec.tags: {key!r} is set by the autoscaler; remove it")
        if key.lower().startswith("aws:"):
            return _bad("TagValidationFailed", f"spec.tags: {key!r} is reserved by AWS; remove it")
    return None


def _check_user_data(node_class: EC2NodeClass, cluster: ClusterFacts) -> Condition | None:
    if problem := user_data_problem(node_class):
        return _bad("UserDataInvalid", problem)
    # Labels and taints of a claim come on top, so what is too large here is too large for every launch.
    size = user_data_bytes(build_user_data(node_class, cluster, labels={}, taints=(), max_pods=110))
    if size > LARGEST_BYTES:
        problem = f"spec.userData: {size} bytes together with what we add; EC2 takes {LARGEST_BYTES}. Shorten it"
        return _bad("UserDataSizeLimitExceeded", problem)
    return None


_Check = Callable[[EC2NodeClass, ClusterFacts], Condition | None]
_BEFORE: tuple[_Check, ...] = (_check_support, _check_cluster, _check_kubelet, _check_connection_tracking)
_AFTER: tuple[_Check, ...] = (_check_tags, _check_user_data)
