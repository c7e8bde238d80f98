"""Volumes of a planning snapshot: those among the files, and claims that will be made for pods."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sawhorse_console.manifests_input import Manifests, Workload
from sawhorse_model.cluster import PersistentVolumeClaim, StorageClass
from sawhorse_model.meta import ObjectMeta
from sawhorse_scheduling.snapshot import PodGroup, Volumes

_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def given_volumes(manifests: Manifests) -> Volumes:
    """The volumes, claims, storage classes and attachment limits that were given."""
    return Volumes(
        claims={claim.meta.key: claim for claim in manifests.volume_claims},
        volumes={volume.meta.name: volume for volume in manifests.volumes},
        classes={kind.meta.name: kind for kind in manifests.storage_classes},
        limits={node.meta.name: node.limits for node in manifests.csi_nodes if node.limits},
    )


def claims_of_pods(
    names: Sequence[str],
    made: Mapping[str, str | None],
    volumes: Volumes,
    claims: dict[str, PersistentVolumeClaim],
) -> None:
    """The claims of ephemeral volumes, which come with their pods: `claims` gets those that are not given.

    Args:
        made: volume → storage class, of each pod.
    """
    default = _default_class(volumes) if made else None
    for volume, storage_class in made.items():
        kind = default if storage_class is None else storage_class
        for key in names:
            space, _, name = key.rpartition("/")
            meta = ObjectMeta(f"{name}-{volume}", space)
            claims.setdefault(meta.key, PersistentVolumeClaim(meta, "Pending", "", kind))


def own_claims(
    workload: Workload, names: Sequence[str], volumes: Volumes, claims: dict[str, PersistentVolumeClaim]
) -> Iterator[PodGroup]:
    """A group per pod of a StatefulSet, as each has claims of its own; `claims` gets those that are not given."""
    default = _default_class(volumes)
    for key in names:
        space, _, name = key.rpartition("/")
        own = []
        for template, storage_class in workload.claims.items():
            meta = ObjectMeta(f"{template}-{name}", space)
            own.append(meta.name)
            kind = default if storage_class is None else storage_class
            claims.setdefault(meta.key, PersistentVolumeClaim(meta, "Pending", "", kind))
        spec = replace(workload.pod.spec, claims=(*workload.pod.spec.claims, *own))
        yield PodGroup(replace(workload.pod, spec=spec), (key,))


def _default_class(volumes: Volumes) -> str | None:
    """The class of claims that name none; the newest where several are marked, as the API server takes it."""

    marked = [kind for kind in volumes.classes.values() if kind.meta.annotations.get(_DEFAULT) == "true"]
    newest = max(marked, key=_age, default=None)
    return newest.meta.name if newest is not None else None


def _age(kind: StorageClass) -> tuple[float, str]:
    return (kind.meta.created.timestamp() if kind.meta.created is not None else 0.0, kind.meta.name)
