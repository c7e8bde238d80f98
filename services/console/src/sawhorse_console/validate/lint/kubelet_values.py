"""Settings of the kubelet that it would refuse at its start: an API server takes them all."""

from collections.abc import Iterator

from sawhorse_console.validate.findings import Finding
from sawhorse_console.validate.lint.subject import CLASS, Subject, Surroundings
from sawhorse_model import aws
from sawhorse_model.meta import ObjectMeta
from sawhorse_model.nodeclass import NodeClass


def kubelet_values(subject: Subject, surroundings: Surroundings) -> Iterator[Finding]:
    """What the EC2NodeClass's condition ValidationSucceeded would say about `spec.kubelet`."""
    if subject.kind != CLASS or not subject.spec.get("kubelet"):
        return
    # Imported here: the package loads the AWS SDK, which takes as long as all the rest of this command.
    from sawhorse_cloud_aws.kubelet import kubelet_problems
    from sawhorse_cloud_aws.spec import read_node_class

    given = NodeClass(ObjectMeta(subject.name), aws.GROUP, aws.KIND, subject.spec)
    node_class, misfits = read_node_class(given)
    for misfit in (*misfits, *kubelet_problems(node_class)):
        field, _, text = misfit.message.partition(": ")
        if field.startswith("spec.kubelet"):
            yield Finding("Kubelet", field, text)
