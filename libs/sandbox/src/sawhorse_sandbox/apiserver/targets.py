"""What a request is about: which object, who writes, how a deletion is meant. Plain data shared by all verbs."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, replace

from sawhorse_sandbox.apiserver.resources import Resource
from sawhorse_sandbox.apiserver.storage import Key, Stored

Clock = Callable[[], datetime.datetime]  # aware, UTC


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def rfc3339(moment: datetime.datetime) -> str:
    """As metav1.Time: whole seconds."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str) -> datetime.datetime:
    """metav1.Time or MicroTime."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


@dataclass(frozen=True, slots=True)
class Target:
    """An object, or with an empty name a collection; the namespace is empty for cluster-wide kinds."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)

    def named(self, name: str) -> Target:
        return replace(self, name=name)


@dataclass(frozen=True, slots=True)
class Write:
    """How something is written."""

    manager: str  # field manager; empty records none
    dry_run: bool = False  # only tried
    strict: bool = False  # fields unknown to a custom resource's schema are an error, not dropped


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace: int | None = None  # seconds; None takes the object's own
    propagation: str = "Background"  # or Foreground, Orphan
    uid: str = ""  # precondition
    resource_version: str = ""  # precondition
    dry_run: bool = False


DEFAULT_DELETE = DeleteOptions()


@dataclass(frozen=True, slots=True)
class Deleted:
    """`gone` is false while finalizers or a grace period hold the object."""

    stored: Stored
    gone: bool


def target_of(resource: Resource, stored: Stored) -> Target:
    metadata = stored.obj["metadata"]
    return Target(resource, str(metadata.get("namespace", "")), str(metadata["name"]))
