"""What `main` makes of settings and of a NodeClass of the one cloud it knows."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sawhorse_cloud_aws import DryRunMode
from sawhorse_provisioner.main import AWS_WORDS, aws_settings
from sawhorse_provisioner.settings import Settings
from sawhorse_testing.cloud_worlds import an_ec2_node_class


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [((), DryRunMode.REQUIRE), (("--disable-dry-run",), DryRunMode.ADVISE)],
    ids=["default", "disabled"],
)
def test_l05_dry_runs_are_required_unless_a_flag_makes_them_advice(
    arguments: tuple[str, ...], mode: DryRunMode
) -> None:
    settings = Settings.load(("--cluster-name=c", *arguments), {}, prog="p", description="d")

    assert aws_settings(settings, "1.36").dry_runs is mode


def test_g01_and_22_the_limits_are_5_minutes_to_launch_15_to_join_and_30_to_offer_a_device() -> None:
    settings = Settings(cluster_name="c")

    limits = (settings.launch_timeout, settings.registration_timeout, settings.initialization_timeout)

    assert [limit.total_seconds() / 60 for limit in limits] == [5, 15, 30]


def test_blocks_that_end_are_read_from_the_status_of_the_node_class() -> None:
    entry = {"id": "cr-1", "state": "expiring", "endTime": "2026-11-29T12:00:00Z", "reservationType": "capacity-block"}
    made = an_ec2_node_class()
    node_class = replace(made, status={**made.status, "capacityReservations": [entry]})

    assert AWS_WORDS.expiring(node_class) == {"cr-1": datetime(2026, 11, 29, 11, 30, tzinfo=UTC)}
    assert AWS_WORDS.reservation in AWS_WORDS.reservation_labels


def test_every_accelerator_has_a_plugin_to_be_named() -> None:
    assert set(AWS_WORDS.plugins) >= AWS_WORDS.exotic
