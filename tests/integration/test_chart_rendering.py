"""What the chart renders: valid for helm, in the settings' own words, hardened, and with the least rights."""

import importlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from sawhorse_kube.kinds import EC2_NODECLASS, MIRRORED

ROOT = Path(__file__).resolve().parents[2]
CHART = str(ROOT / "deploy/chart")
SERVICES = ("watcher", "pricing", "provisioner", "interruption")
WRITES = {"create", "update", "patch", "delete", "deletecollection", "*"}

Documents = list[dict[str, Any]]
Render = Callable[..., Documents]

pytestmark = [pytest.mark.integration, pytest.mark.real]


def of_kind(documents: Documents, kind: str) -> dict[str, dict[str, Any]]:
    """Documents of a kind by the service's name."""
    found = [d for d in documents if d["kind"] == kind]
    return {d["metadata"]["name"].removeprefix("sawhorse-"): d for d in found}


def environment(deployment: dict[str, Any]) -> dict[str, str]:
    """The environment of a service's container."""
    return {e["name"]: e["value"] for e in deployment["spec"]["template"]["spec"]["containers"][0]["env"]}


def rules(documents: Documents, service: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of all roles of a service."""
    roles = [of_kind(documents, kind).get(service) for kind in ("ClusterRole", "Role")]
    return {
        (group, resource, verb)
        for role in roles
        if role
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def pod_specs(documents: Documents) -> Iterable[tuple[str, dict[str, Any]]]:
    return ((name, d["spec"]["template"]["spec"]) for name, d in of_kind(documents, "Deployment").items())


def test_helm_finds_no_fault(helm: Callable[..., Any]) -> None:
    values = ["--set", "settings.clusterName=x,settings.awsRegion=us-east-1,settings.interruptionQueue=q"]

    done = helm("lint", "--strict", CHART, *values)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("missing", ["settings.clusterName", "settings.awsRegion"])
def test_a_required_value_that_is_missing_is_named(helm: Callable[..., Any], missing: str) -> None:
    given = {"settings.clusterName": "x", "settings.awsRegion": "us-east-1"}
    words = [w for path, value in given.items() if path != missing for w in ("--set", f"{path}={value}")]

    done = helm("template", "sawhorse", CHART, *words)

    assert done.returncode != 0
    assert f"{missing}: required" in done.stderr


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("settings.featureGates.nodeRepair=true", "featureGates"),
        ("settings.preferencePolicy=Perhaps", "preferencePolicy"),
        # Unquoted in a file, 1.30 is the number 1.3.
        ("settings.kubernetesVersion=130", "kubernetesVersion"),
    ],
)
def test_a_setting_that_the_chart_does_not_know_is_refused_by_name(
    helm: Callable[..., Any], value: str, named: str
) -> None:
    words = ["--set", "settings.clusterName=x,settings.awsRegion=us-east-1", "--set", value]

    done = helm("template", "sawhorse", CHART, *words)

    assert done.returncode != 0
    assert named in done.stderr


def test_every_setting_of_the_charts_values_is_in_its_schema() -> None:
    values = yaml.safe_load((ROOT / "deploy/chart/values.yaml").read_text())
    schema = json.loads((ROOT / "deploy/chart/values.schema.json").read_text())

    assert set(schema["properties"]["settings"]["properties"]) == set(values["settings"])


@pytest.mark.parametrize("service", SERVICES)
def test_a_services_environment_is_what_its_settings_take(render: Render, service: str, tmp_path: Path) -> None:
    deployment = of_kind(render(values={"grpc.tlsSecretName": "certificates"}), "Deployment")[service]
    settings = importlib.import_module(f"sawhorse_{service}.settings").Settings
    given = environment(deployment)

    loaded = settings.load([], given, prog=service, description="")

    assert set(given) <= {field.upper() for field in settings.__dataclass_fields__}
    assert loaded.cluster_name == "sandbox"
    mounts = {m["mountPath"] for m in deployment["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]}
    files = [value for name, value in given.items() if name.endswith("_FILE")]
    assert len(files) == 4
    assert all(str(Path(file).parent) in mounts for file in files)


def test_karpenters_value_names_reach_the_settings_of_the_same_name(render: Render) -> None:
    values = {
        "settings.batchMaxDuration": "20s",
        "settings.batchIdleDuration": "2s",
        "settings.preferencePolicy": "Ignore",
        "settings.minValuesPolicy": "BestEffort",
        "settings.vmMemoryOverheadPercent": "0.1",
        "settings.reservedENIs": "1",
        "settings.isolatedVPC": "true",
        "settings.clusterEndpoint": "https://example.test",
        "settings.clusterCABundle": "Y2E=",
        "settings.interruptionQueue": "queue",
        "logLevel": "debug",
    }

    deployments = of_kind(render(values=values), "Deployment")

    provisioner, pricing = environment(deployments["provisioner"]), environment(deployments["pricing"])
    assert provisioner["BATCH_MAX_DURATION"] == "20s"
    assert provisioner["BATCH_IDLE_DURATION"] == "2s"
    assert provisioner["PREFERENCE_POLICY"] == "Ignore"
    assert provisioner["MIN_VALUES_POLICY"] == "BestEffort"
    assert provisioner["CLUSTER_ENDPOINT"] == "https://example.test"
    assert provisioner["CLUSTER_CA_BUNDLE"] == "Y2E="
    assert provisioner["LOG_LEVEL"] == "debug"
    assert pricing["VM_MEMORY_OVERHEAD_PERCENT"] == "0.1"
    assert pricing["RESERVED_ENIS"] == "1"
    assert pricing["ISOLATED_VPC"] == "true"
    assert environment(deployments["interruption"])["INTERRUPTION_QUEUE"] == "queue"


def test_the_charts_defaults_are_the_services_defaults(render: Render) -> None:
    documents = render()

    for service in SERVICES:
        settings = importlib.import_module(f"sawhorse_{service}.settings").Settings
        given = environment(of_kind(documents, "Deployment")[service])
        required = {"CLUSTER_NAME", "AWS_REGION", "INTERRUPTION_QUEUE", "INSECURE_GRPC", "GRPC_ADDRESS"}
        plain = settings.load([], {k: v for k, v in given.items() if k in required}, prog=service, description="")
        loaded = settings.load([], given, prog=service, description="")
        told = {"redis_url", "redis_password_file", "pricing_address", "leader_election_namespace"}
        for field in set(settings.__dataclass_fields__) - told:
            assert getattr(loaded, field) == getattr(plain, field), field


def test_without_a_queue_there_is_no_interruption_service(render: Render) -> None:
    documents = render(values={"settings.interruptionQueue": ""})

    assert not [d for d in documents if d["metadata"]["name"] == "sawhorse-interruption"]


def test_clients_find_pricing_and_redis_by_the_names_of_their_services(render: Render) -> None:
    documents = render(release="release", namespace="elsewhere")

    names = {f"{d['metadata']['name']}.elsewhere": d["spec"]["ports"] for d in documents if d["kind"] == "Service"}
    for deployment in (
        d for d in documents if d["kind"] == "Deployment" and not d["metadata"]["name"].endswith("redis")
    ):
        given = environment(deployment)
        host, _, port = given["REDIS_URL"].removeprefix("redis://").removesuffix("/0").rpartition(":")
        assert int(port) in [p["port"] for p in names[host]]
        if "PRICING_ADDRESS" in given:
            host, _, port = given["PRICING_ADDRESS"].rpartition(":")
            assert int(port) in [p["port"] for p in names[host]]


def test_every_pod_is_hardened_probed_and_placed(render: Render) -> None:
    for name, spec in pod_specs(render()):
        security, container = spec["securityContext"], spec["containers"][0]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        assert container["readinessProbe"]
        assert container["livenessProbe"]
        assert spec["priorityClassName"] == "system-cluster-critical"
        assert spec["enableServiceLinks"] is False  # else REDIS_PORT and its like come from Services
        component = {
            c["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] for c in spec["topologySpreadConstraints"]
        }
        assert component == {name}


def test_probes_ask_health_for_life_and_readiness_for_traffic(render: Render) -> None:
    for name, spec in pod_specs(render()):
        if name == "redis":
            continue
        container = spec["containers"][0]
        ports = {p["name"]: p["containerPort"] for p in container["ports"]}
        assert ports["http"] == 8081
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert container["startupProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
        settings = importlib.import_module(f"sawhorse_{name}.settings").Settings
        loaded = settings.load([], environment(of_kind(render(), "Deployment")[name]), prog=name, description="")
        assert loaded.health_probe_port == ports["http"]
        assert loaded.metrics_port == ports["http-metrics"]
        assert spec["terminationGracePeriodSeconds"] > loaded.drain_timeout.total_seconds()


def test_the_watcher_reads_exactly_what_it_mirrors_and_writes_its_lease_only(render: Render) -> None:
    granted = rules(render(), "watcher")

    mirrored = {(kind.group, kind.plural, verb) for kind in (*MIRRORED, EC2_NODECLASS) for verb in ("list", "watch")}
    leases = {("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "patch")}
    assert granted == mirrored | leases


def test_interruption_may_evict_but_not_create_claims(render: Render) -> None:
    granted = rules(render(), "interruption")

    assert ("", "pods/eviction", "create") in granted
    assert ("karpenter.sh", "nodeclaims", "create") not in granted
    assert ("", "nodes", "delete") not in granted


def test_pricing_and_redis_have_no_rights_and_no_token(render: Render) -> None:
    documents = render()
    specs = dict(pod_specs(documents))

    for name in ("pricing", "redis"):
        assert rules(documents, name) == set()
        assert specs[name]["automountServiceAccountToken"] is False
    bound = {s["name"] for d in documents if d["kind"].endswith("RoleBinding") for s in d["subjects"]}
    assert bound == {"sawhorse-watcher", "sawhorse-provisioner", "sawhorse-interruption"}


def test_nobody_may_do_everything_or_read_secrets_or_give_rights(render: Render) -> None:
    documents = render()

    for service in SERVICES:
        for group, resource, verb in rules(documents, service):
            assert "*" not in (group, resource, verb)
            assert resource not in ("secrets", "serviceaccounts/token", "pods/exec", "pods/ephemeralcontainers")
            assert not (group == "rbac.authorization.k8s.io" and verb in WRITES)
    # Leases by name, so that no service holds another's.
    for role in of_kind(documents, "Role").values():
        assert all(rule.get("resourceNames") or rule["verbs"] == ["create"] for rule in role["rules"])


def test_the_password_is_the_given_one_or_long_and_random(render: Render) -> None:
    given = of_kind(render(values={"redis.password": "given"}), "Secret")["redis"]
    made = [of_kind(render(), "Secret")["redis"]["stringData"]["redis-password"] for _ in range(2)]

    assert given["stringData"] == {"redis-password": "given"}
    assert made[0] != made[1]
    assert all(len(password) == 32 for password in made)


def test_redis_of_ones_own_takes_the_place_of_the_charts(render: Render) -> None:
    values = {
        "redis.enabled": "false",
        "redis.url": "rediss://cache.example.test:6380/1",
        "redis.existingSecret": "mine",
    }

    documents = render(values=values)

    assert not [d for d in documents if d["metadata"]["name"].endswith("-redis")]
    for name, spec in pod_specs(documents):
        assert environment(of_kind(documents, "Deployment")[name])["REDIS_URL"] == "rediss://cache.example.test:6380/1"
        assert {"name": "redis", "secret": {"secretName": "mine", "defaultMode": 0o440}} in spec["volumes"]


def test_the_charts_crds_are_the_projects(render: Render) -> None:
    shipped = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "deploy/crds").glob("*.yaml"))]

    rendered = [d for d in render() if d["kind"] == "CustomResourceDefinition"]

    assert sorted(rendered, key=lambda d: d["metadata"]["name"]) == sorted(shipped, key=lambda d: d["metadata"]["name"])


def test_names_labels_and_annotations_of_the_user_reach_every_object(render: Render) -> None:
    values = {
        "fullnameOverride": "mine",
        "additionalLabels.team": "nodes",
        "additionalAnnotations.note": "hello",
        "podLabels.pod": "yes",
        "provisioner.serviceAccount.annotations.role": "arn",
    }

    documents = [d for d in render(values=values) if d["kind"] != "CustomResourceDefinition"]

    for document in documents:
        assert document["metadata"]["name"].startswith("mine-")
        assert document["metadata"]["labels"]["team"] == "nodes"
        assert document["metadata"]["annotations"]["note"] == "hello"
    accounts = {d["metadata"]["name"]: d for d in documents if d["kind"] == "ServiceAccount"}
    assert accounts["mine-provisioner"]["metadata"]["annotations"] == {"note": "hello", "role": "arn"}
    for document in (d for d in documents if d["kind"] == "Deployment"):
        assert document["spec"]["template"]["metadata"]["labels"]["pod"] == "yes"
