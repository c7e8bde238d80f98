"""Settings: what is refused at the start, and that the defaults are those that are promised."""

from datetime import timedelta
from typing import Any

import pytest

from sawhorse_interruption.main import limits_of
from sawhorse_interruption.settings import Settings
from sawhorse_runtime.errors import SettingsError

NEEDED = ["--cluster-name=c", "--interruption-queue=q", "--aws-region=eu-west-1"]


def load(*argv: str) -> Settings:
    return Settings.load([*NEEDED, *argv], {}, prog="p", description="d")


def test_the_defaults_are_four_receivers_64_handlers_and_30_s_of_visibility() -> None:
    limits = limits_of(load())

    assert (limits.receivers, limits.handlers, limits.visibility) == (4, 64, timedelta(seconds=30))
    assert load().deadline_margin == timedelta(seconds=10)
    assert load().grpc_address == "127.0.0.1:7403"


@pytest.mark.parametrize(
    "flag",
    [
        "--queue-visibility=1s",
        "--queue-visibility=13h",
        "--queue-wait=21s",
        "--queue-wait=500ms",
        "--queue-handlers=0",
        "--queue-receivers=0",
        "--queue-parked=-1",
        "--drain-workers=0",
        "--kube-client-qps=0",
        "--deadline-margin=2m",
    ],
)
def test_a_value_that_cannot_work_stops_the_start_with_what_to_do(flag: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(flag)

    (problem,) = refused.value.problems
    assert problem.startswith(flag.partition("=")[0])
    assert ";" in problem


def test_settings_come_from_the_environment_too() -> None:
    environ = {"CLUSTER_NAME": "c", "INTERRUPTION_QUEUE": "q", "AWS_REGION": "r"}

    settings: Any = Settings.load([], environ, prog="p", description="d")

    assert (settings.interruption_queue, settings.aws_region) == ("q", "r")
