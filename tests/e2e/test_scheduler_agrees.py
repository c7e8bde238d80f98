"""The scheduler agrees: on the real control plane every pod of a mixed workload is bound to the first plan's nodes."""

from pathlib import Path

import pytest

from sawhorse_console.demo.manifests import node_class
from sawhorse_kube.client import connect_kube
from sawhorse_sandbox.world import start_world
from sawhorse_testing.agreement.trial import Trial

pytestmark = [pytest.mark.e2e, pytest.mark.real, pytest.mark.alone]


async def test_kube_scheduler_binds_every_pod_to_the_nodes_of_the_first_plan(tmp_path: Path, real_assets: Path) -> None:
    async with (
        start_world(tmp_path, column="assets", assets=real_assets) as world,
        connect_kube(kubeconfig=world.kubeconfig) as kube,
    ):
        trial = Trial(world, kube, node_class(world.cluster, world.account.role_name), spread_part=3)

        outcome = await trial.run(hints=True, slack=0.05)

    assert outcome.pods >= 500
    assert (outcome.pending, outcome.elsewhere) == (0, 0), outcome
    assert (outcome.claims, outcome.rounds) == (outcome.first_claims, 1), outcome
    # Pods of a spread over zones go on as others are bound, some before a hint comes to them.
    assert outcome.hinted >= 0.8 * outcome.pods, outcome
    assert outcome.as_hinted >= 0.85 * outcome.hinted, outcome
    assert trial.history.opened_before_hinted() == []
