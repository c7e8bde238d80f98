"""What `sawhorse plan` cannot use: exit 2, one line each with file, object, field, what is wrong; never a traceback."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from sawhorse_console.manifests_files import UnreadableError
from sawhorse_console.manifests_input import read_manifests
from sawhorse_console.plan_command import run_plan

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: %s
  template:
    spec:
      containers: [{name: app, resources: {requests: {cpu: %s}}}]
"""
CATALOG = (
    '{"apiVersion":"sawhorse.dev/v1","kind":"Catalog","instanceTypes":'
    '[{"name":"a","vcpus":2,"memoryMiB":4096,"offerings":[%s]}]}'
)


def plan(*files: Path, strict: bool = False, catalog: Path | None = None) -> tuple[int, list[str]]:
    stderr = io.StringIO()
    code = run_plan(
        files,
        catalog=catalog,
        output="json",
        strict=strict,
        stdout=io.StringIO(),
        stderr=stderr,
    )
    return code, stderr.getvalue().splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            DEPLOYMENT % (1, '"-1"'),
            "Deployment web: spec.template.spec.containers[0].resources.requests.cpu: '-1' is neg",
        ),
        (DEPLOYMENT % (2**31, "1"), "Deployment web: spec.replicas: 2147483648 is outside 0..2147483647"),
        (DEPLOYMENT % (-1, "1"), "Deployment web: spec.replicas: -1 is outside"),
        (DEPLOYMENT % ("many", "1"), "Deployment web: spec.replicas: must be a whole number"),
        (DEPLOYMENT % (1, "lots"), "is not a quantity"),
        (DEPLOYMENT % (1, ".nan"), "is not a quantity"),
        (DEPLOYMENT % (1, "1e999"), "larger than any resource"),
        ("a: [1", "is not YAML"),
        ("a: b: c", "is not YAML"),
        ("just text", "where a Kubernetes object is expected"),
        ("- 1\n- 2", "where a Kubernetes object is expected"),
        ("apiVersion: v1\nmetadata: {name: x}", "kind: is missing"),
        ("kind: Deployment\napiVersion: apps/v1\nmetadata: {name: x}\nspec: {}", "spec.template: is missing"),
        ("kind: Deployment\napiVersion: apps/v1\nmetadata: {name: x}\nspec: 3", "spec: must be an object"),
        ("kind: Pod\napiVersion: v1\nspec: {}", "metadata.name: is missing"),
        ("kind: Pod\nmetadata: {name: x, labels: {a: 1}}", "put it in quotes"),
        ("kind: Pod\nmetadata: {name: x}\nspec: {nodeSelector: {1: x}}", "the key 1 is not a text"),
        ("kind: List\nitems: 3", "List: items: must be a list"),
        ("kind: NodePool\napiVersion: karpenter.sh/v1\nmetadata: {name: p}\nspec: {weight: 999}", "NodePool p: "),
        (
            "kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a, resources: {requests: {memory: 7Ei}}}]}",
            "Pod x: spec.containers: ask together for 8070450532247928832 of memory, more than any node can have",
        ),
        (
            "kind: EC2NodeClass\nmetadata: {name: d}\nspec: {blockDeviceMappings: [{ebs: {volumeSize: -20Gi}}]}",
            "EC2NodeClass d: spec.blockDeviceMappings[0].ebs.volumeSize: '-20Gi' is negative",
        ),
        (
            "kind: NodePool\nmetadata: {name: p}\n"
            "spec: {limits: {cpu: '-5'}, template: {spec: {nodeClassRef: {name: d}}}}",
            "NodePool p: spec.limits.cpu: '-5' is negative",
        ),
        (
            "kind: Job\nmetadata: {name: j}\nspec: {parallelism: 3000000000, template: {spec: {}}}",
            "spec.parallelism: 300",
        ),
        ("a: &a [*a]", "nested too deeply"),
        ("\x00", "is not YAML"),
        ("!!python/object:os.system {}", "is not YAML"),
    ],
)
def test_input_that_makes_no_sense_is_exit_2_and_one_line(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(text)

    code, lines = plan(file)

    assert code == 2
    assert len(lines) == 1
    assert lines[0].startswith(f"{file}: ")
    assert expected in lines[0]


def test_broken_json_is_told_as_json(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text('{"kind": "List", ')

    code, lines = plan(file)

    assert code == 2
    assert "is not JSON" in lines[0]


def test_very_deep_json_is_refused_quietly(tmp_path: Path) -> None:
    file = tmp_path / "in.json"
    file.write_text("[" * 100_000)

    code, lines = plan(file)

    assert (code, len(lines)) == (2, 1)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "in.yaml"
    file.write_bytes(b"\xff\xfe\x00kind")

    code, lines = plan(file)

    assert (code, len(lines)) == (2, 1)


def test_a_missing_file_and_an_empty_folder_are_named(tmp_path: Path) -> None:
    code, lines = plan(tmp_path / "nope.yaml", tmp_path)

    assert code == 2
    assert lines == [
        f"{tmp_path / 'nope.yaml'}: no such file or folder",
        f"{tmp_path}: the folder has no .yaml, .yml, .json files",
    ]


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(f"{DEPLOYMENT % (-1, '1')}---{(DEPLOYMENT % (1, 'x')).replace('web', 'db')}")

    code, lines = plan(file)

    assert (code, len(lines)) == (2, 2)


def test_an_object_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(DEPLOYMENT % (1, "1"))
    (tmp_path / "b.yaml").write_text(DEPLOYMENT % (2, "1"))

    code, lines = plan(tmp_path)

    assert code == 2
    assert "is given twice (also in " in lines[0]


def test_equal_names_in_two_namespaces_are_two_objects(tmp_path: Path) -> None:
    other = (DEPLOYMENT % (1, "1")).replace("{name: web}", "{name: web, namespace: x}")
    (tmp_path / "a.yaml").write_text(f"{DEPLOYMENT % (1, '1')}---{other}")

    assert len(read_manifests([tmp_path]).workloads) == 2


def test_folders_are_searched_below_and_lists_opened(tmp_path: Path) -> None:
    below = tmp_path / "x" / "y"
    below.mkdir(parents=True)
    pod = {"metadata": {"name": "p"}, "spec": {"containers": []}}
    (below / "pods.json").write_text(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": [pod]}))
    (below / "notes.txt").write_text("not read")
    (tmp_path / "many.yml").write_text(f"---\n{DEPLOYMENT % (1, '1')}\n---\n---\n")

    found = read_manifests([tmp_path])

    assert [p.meta.key for p in found.pods] == ["default/p"]
    assert [w.meta.name for w in found.workloads] == ["web"]


def test_kinds_that_do_not_matter_are_skipped_with_one_warning(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "kind: ConfigMap\nmetadata: {name: a}\n---\nkind: ConfigMap\nmetadata: {name: b}\n---\n" + DEPLOYMENT % (1, "1")
    )

    found = read_manifests([tmp_path])

    assert [p.text for p in found.notable] == [
        "kind ConfigMap does not matter to planning; such objects are skipped",
    ]


@pytest.mark.parametrize(
    ("version", "kind", "expected"),
    [
        ("serving.knative.dev/v1", "Deployment", "not one that is planned with"),
        ("karpenter.sh/v1beta1", "NodePool", "convert it to karpenter.sh/v1"),
        ("cloud.google.com/v1", "ComputeClass", "not planned for yet"),
    ],
)
def test_an_object_of_another_group_or_version_is_skipped_and_that_is_said(
    tmp_path: Path, version: str, kind: str, expected: str
) -> None:
    (tmp_path / "a.yaml").write_text(f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n")

    found = read_manifests([tmp_path])

    assert expected in found.notable[0].text


def test_a_misspelt_field_is_warned_about_and_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text((DEPLOYMENT % (1, "1")).replace("resources:", "resource:"))

    found = read_manifests([tmp_path])

    assert [p.field for p in found.notable] == ["spec.template.spec.containers[0].resource"]


def test_strict_refuses_what_is_otherwise_a_warning(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("kind: ConfigMap\nmetadata: {name: a}\n")

    with pytest.raises(UnreadableError, match="does not matter"):
        read_manifests([tmp_path], strict=True)


def test_ordinary_manifests_have_no_unknown_fields(tmp_path: Path) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"x": "y"}, "managedFields": []},
        "spec": {
            "serviceAccountName": "s",
            "volumes": [{"name": "v", "emptyDir": {}}],
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "env": [{"name": "A", "value": "b"}],
                    "ports": [{"containerPort": 80}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "readinessProbe": {"httpGet": {"port": 80}},
                    "securityContext": {"runAsNonRoot": True},
                }
            ],
        },
        "status": {"phase": "Pending", "conditions": []},
    }
    (tmp_path / "p.json").write_text(json.dumps(pod))

    assert read_manifests([tmp_path]).notable == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", "Catalog"),
        ("not json", "Catalog"),
        ('{"apiVersion":"sawhorse.dev/v1","kind":"Other","instanceTypes":[]}', "kind"),
        ('{"apiVersion":"sawhorse.dev/v1","kind":"Catalog","instanceTypes":[{"name":""}]}', "instanceTypes[0]"),
        ('{"apiVersion":"sawhorse.dev/v1","kind":"Catalog","instanceTypes":[]}', "the catalogue is empty"),
        (CATALOG % '{"zone":"z","capacityType":"on-demand","price":NaN}', "offerings[0].price: nan is not a price"),
        (CATALOG % '{"zone":"z","capacityType":"on-demand","price":-1}', "offerings[0].price: -1.0 is negative"),
        (CATALOG % '{"zone":"z","capacityType":"on-demand","price":1e999}', "offerings[0].price: inf is not a price"),
    ],
)
def test_a_catalogue_that_cannot_be_used_is_exit_2(tmp_path: Path, text: str, expected: str) -> None:
    manifest, catalog = tmp_path / "m.yaml", tmp_path / "c.json"
    manifest.write_text(DEPLOYMENT % (1, "1"))
    catalog.write_text(text)

    code, lines = plan(manifest, catalog=catalog)

    assert (code, len(lines)) == (2, 1)
    assert lines[0].startswith(f"{catalog}: Catalog")
    assert expected in lines[0]


def test_a_missing_catalogue_is_named(tmp_path: Path) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text(DEPLOYMENT % (1, "1"))

    code, lines = plan(manifest, catalog=tmp_path / "none.json")

    assert (code, lines) == (2, [f"{tmp_path / 'none.json'}: cannot be read: No such file or directory"])


def test_a_contradictory_requirement_is_no_error_its_pods_are_unschedulable(tmp_path: Path) -> None:
    manifest = tmp_path / "m.yaml"
    manifest.write_text(
        """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: p}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: d}
      requirements:
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
      - {key: kubernetes.io/arch, operator: In, values: [arm64]}
---"""
        + DEPLOYMENT % (1, "1")
    )

    code, lines = plan(manifest)

    assert (code, lines) == (1, [])


def test_more_pods_than_a_plan_can_name_are_refused_before_they_fill_the_memory(tmp_path: Path) -> None:
    file = tmp_path / "in.yaml"
    file.write_text(DEPLOYMENT % (2**31 - 1, "1"))

    code, lines = plan(file)

    text = "spec.replicas: 2147483647 pods are more than one plan can name, which is 20000000"
    assert (code, lines) == (2, [f"{file}: Deployment web: {text}"])


def test_a_fault_of_a_node_class_is_told_though_no_pool_uses_it_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "in.yaml"
    file.write_text("kind: EC2NodeClass\nmetadata: {name: d}\nspec: {blockDeviceMappings: 5}")

    code, lines = plan(file)

    assert (code, lines) == (2, [f"{file}: EC2NodeClass d: spec.blockDeviceMappings: must be a list, not a number"])
