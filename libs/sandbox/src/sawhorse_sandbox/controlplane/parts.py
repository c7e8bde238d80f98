"""What each part of the control plane is started with: command lines and the files they read. It starts nothing."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

# Controllers that workloads, evictions, volumes and node failures need. Left out: those that need a cloud, a network
# or certificates. The two protection controllers lift finalizers that admission sets: without them no claim deletes.
CONTROLLERS = (
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "validatingadmissionpolicy-status-controller",
)


@dataclass(frozen=True, slots=True)
class Ports:
    """The loopback ports of one control plane."""

    etcd: int
    etcd_peer: int
    apiserver: int
    scheduler: int
    controller_manager: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where one control plane keeps its files. All of them are its own and are made anew at each start."""

    directory: Path

    @property
    def etcd_data(self) -> Path:
        """Return the folder of etcd's data."""
        return self.directory / "etcd"

    @property
    def certificates(self) -> Path:
        """Return the folder where the API server puts its self-signed serving certificate."""
        return self.directory / "certs"

    @property
    def serving_certificate(self) -> Path:
        """Return the API server's certificate; it stands for its own CA."""
        return self.certificates / "apiserver.crt"

    @property
    def tokens(self) -> Path:
        """Return the static token file of the API server."""
        return self.directory / "tokens.csv"

    @property
    def private_key(self) -> Path:
        """Return the key that signs service account tokens."""
        return self.directory / "sa.key"

    @property
    def public_key(self) -> Path:
        """Return the key that checks service account tokens."""
        return self.directory / "sa.pub"

    @property
    def kubeconfig(self) -> Path:
        """Return the administrator's kubeconfig."""
        return self.directory / "kubeconfig"

    @property
    def scheduler_config(self) -> Path:
        """Return the scheduler's configuration file."""
        return self.directory / "scheduler.yaml"

    def log(self, name: str) -> Path:
        """Return the log file of a part."""
        return self.directory / f"{name}.log"


def etcd_command(assets: Path, layout: Layout, ports: Ports) -> list[str | Path]:
    """Return the command of etcd. The data is thrown away with the world, so it is not synced to disk."""
    client, peer = f"http://127.0.0.1:{ports.etcd}", f"http://127.0.0.1:{ports.etcd_peer}"
    return [
        assets / "etcd",
        f"--data-dir={layout.etcd_data}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]


def apiserver_command(assets: Path, layout: Layout, ports: Ports) -> list[str | Path]:
    """Return the command of kube-apiserver."""
    return [
        assets / "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{ports.etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={ports.apiserver}",
        f"--cert-dir={layout.certificates}",
        "--service-cluster-ip-range=10.100.0.0/16",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={layout.private_key}",
        f"--service-account-key-file={layout.public_key}",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        "--endpoint-reconciler-type=none",
        # Else every namespace needs its service account before the first pod.
        "--disable-admission-plugins=ServiceAccount",
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=2000",
        "--max-mutating-requests-inflight=1000",
        "--v=1",
    ]


def scheduler_command(assets: Path, layout: Layout, ports: Ports) -> list[str | Path]:
    """Return the command of kube-scheduler."""
    return [
        assets / "kube-scheduler",
        f"--config={layout.scheduler_config}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.scheduler}",
        "--v=1",
    ]


def controller_manager_command(assets: Path, layout: Layout, ports: Ports) -> list[str | Path]:
    """Return the command of kube-controller-manager."""
    return [
        assets / "kube-controller-manager",
        f"--kubeconfig={layout.kubeconfig}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.controller_manager}",
        "--leader-elect=false",
        f"--controllers={','.join(CONTROLLERS)}",
        "--use-service-account-credentials=false",
        f"--service-account-private-key-file={layout.private_key}",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--node-monitor-period=2s",
        "--node-monitor-grace-period=40s",
        "--v=1",
    ]


def write_files(layout: Layout, token: str) -> None:
    """Write what the parts read before the API server runs: tokens, keys, the scheduler's configuration."""
    write_private(layout.tokens, f'{token},admin,admin,"system:masters"\n')
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    write_private(layout.private_key, private.decode())
    layout.public_key.write_bytes(public)
    # At the default of 50 requests/s both marking and binding crawl at 50 pods/s.
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(layout.kubeconfig), "qps": 1000, "burst": 2000},
    }
    layout.scheduler_config.write_text(json.dumps(config))


def write_kubeconfig(layout: Layout, url: str, token: str, certificate: str) -> None:
    """Write the administrator's kubeconfig.

    Args:
        certificate: the CA, base64 of PEM; inside the file, so that it may be copied elsewhere.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "sandbox", "cluster": {"server": url, "certificate-authority-data": certificate}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin"}}],
        "current-context": "sandbox",
    }
    # JSON is YAML, and every kubeconfig reader takes it.
    write_private(layout.kubeconfig, json.dumps(config, indent=1))


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    draft = path.with_name(f".{path.name}.draft")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)
