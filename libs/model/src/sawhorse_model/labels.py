"""Label, annotation, taint and finalizer names of Kubernetes, of Karpenter v1 and of ours. No cloud's own labels."""

HOSTNAME = "kubernetes.io/hostname"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
WINDOWS_BUILD = "node.kubernetes.io/windows-build"
EXCLUDE_BALANCERS = "node.kubernetes.io/exclude-from-external-load-balancers"

NODEPOOL = "karpenter.sh/nodepool"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
REGISTERED = "karpenter.sh/registered"
INITIALIZED = "karpenter.sh/initialized"
DO_NOT_SYNC_TAINTS = "karpenter.sh/do-not-sync-taints"

DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
NODEPOOL_HASH = "karpenter.sh/nodepool-hash"
MIN_VALUES_RELAXED = "karpenter.sh/nodeclaim-min-values-relaxed"  # annotation of a claim: "true" or "false"
NODEPOOL_HASH_VERSION = "karpenter.sh/nodepool-hash-version"
TERMINATION_TIMESTAMP = "karpenter.sh/nodeclaim-termination-timestamp"

TERMINATION_FINALIZER = "karpenter.sh/termination"

UNREGISTERED_TAINT = "karpenter.sh/unregistered"
DISRUPTED_TAINT = "karpenter.sh/disrupted"

# Ours. Values: see docs/configuration.md.
HINT_MANAGER = "sawhorse-hints"  # field manager of status.nominatedNodeName that we set
LAUNCH_TOKEN = "sawhorse.dev/launch"
DRAIN_OWNER = "sawhorse.dev/drain-owner"
INTERRUPTED_AT = "sawhorse.dev/interrupted-at"
REPLACEMENT_READY = "sawhorse.dev/replacement-ready"

WELL_KNOWN: frozenset[str] = frozenset(
    {NODEPOOL, ZONE, REGION, INSTANCE_TYPE, ARCH, OS, CAPACITY_TYPE, WINDOWS_BUILD},
)

# Old names of today's labels: translated before any comparison.
ALIASES: dict[str, str] = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
    "beta.kubernetes.io/arch": ARCH,
    "beta.kubernetes.io/os": OS,
    "beta.kubernetes.io/instance-type": INSTANCE_TYPE,
}


def normalize(key: str) -> str:
    """Translate an outdated label key to today's."""
    return ALIASES.get(key, key)


def domain(key: str) -> str:
    """Return the part before the first slash, or an empty text."""
    return key.partition("/")[0] if "/" in key else ""


def likely_meant(key: str, known: frozenset[str]) -> str:
    """The known label that somebody who wrote `key` probably meant: it ends alike, or contains it. Empty: none."""
    name = key.rpartition("/")[2]
    alike = [(label.rpartition("/")[2] != name, len(label), label) for label in known if label.endswith(f"/{name}")]
    alike += [(True, len(label), label) for label in known if key in label]
    return min(alike)[2] if key and alike else ""


def in_domain(key: str, name: str) -> bool:
    """Whether the key's domain is `name` or below it."""
    own = domain(key)
    return own == name or own.endswith("." + name)
