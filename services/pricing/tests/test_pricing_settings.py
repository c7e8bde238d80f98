"""Settings: names, defaults and what is refused."""

from datetime import timedelta

import pytest

from sawhorse_pricing.settings import Settings
from sawhorse_runtime.errors import SettingsError


def load(*argv: str, **environ: str) -> Settings:
    base = {"CLUSTER_NAME": "demo", "AWS_REGION": "us-east-1"}
    return Settings.load(list(argv), {**base, **environ}, prog="sawhorse-pricing", description="")


def test_defaults_are_karpenters_where_karpenter_has_them() -> None:
    settings = load()

    assert (settings.vm_memory_overhead_percent, settings.reserved_enis) == (0.075, 0)
    assert settings.catalog_refresh_interval == timedelta(hours=12)
    assert settings.grpc_address == "127.0.0.1:7401"


def test_every_setting_is_a_flag_and_a_variable() -> None:
    settings = load("--reserved-enis", "2", VM_MEMORY_OVERHEAD_PERCENT="0.05", ISOLATED_VPC="true")

    assert (settings.reserved_enis, settings.vm_memory_overhead_percent, settings.isolated_vpc) == (2, 0.05, True)


@pytest.mark.parametrize(
    ("flag", "value", "why"),
    [
        ("--vm-memory-overhead-percent", "-0.1", "at least 0"),
        ("--vm-memory-overhead-percent", "7.5", "leave no memory"),
        ("--reserved-enis", "-1", "at least 0"),
        ("--catalog-refresh-interval", "0", "at least 1s"),
        ("--catalog-max-age", "1h", "raise it"),
    ],
)
def test_values_that_make_no_sense_are_refused_with_what_to_do(flag: str, value: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why) as caught:
        load(flag, value)

    assert caught.value.problems[0].startswith(flag)


def test_the_region_is_required() -> None:
    with pytest.raises(SettingsError, match="AWS_REGION"):
        load(AWS_REGION="")
