"""docker-compose.yml: complete, hardened, and in the settings' own words."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("watcher", "pricing", "provisioner", "interruption")
# Names that the AWS SDK reads by itself; no setting of ours.
SDK = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"}


def dockerfile_of(service: str) -> Path:
    return ROOT / SERVICES[service]["build"]["dockerfile"]


def test_redis_the_sandbox_and_all_five_services_are_there() -> None:
    assert set(SERVICES) == {"redis", "sandbox", *OURS, "console", "story"}


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_has_an_image_a_health_check_and_the_one_network(name: str) -> None:
    service = SERVICES[name]

    assert service["image"]
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert service["networks"] == ["sawhorse"]
    assert name in ("redis", "story") or dockerfile_of(name).is_file()  # story is the sandbox's image


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_has_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]

    user, _, group = service["user"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not {"privileged", "cap_add", "devices", "pid", "network_mode", "ports"} & set(service)


@pytest.mark.parametrize("name", OURS)
def test_a_services_environment_is_what_its_settings_take(name: str) -> None:
    settings = importlib.import_module(f"sawhorse_{name}.settings").Settings
    environment = {key: value for key, value in SERVICES[name]["environment"].items() if key not in SDK}

    loaded = settings.load([], environment, prog=name, description="")

    known = {field.upper() for field in settings.__dataclass_fields__}
    assert set(environment) <= known
    assert loaded.cluster_name == "sandbox"
    assert loaded.insecure_grpc is True  # the network is private


@pytest.mark.parametrize("name", OURS)
def test_a_services_port_is_the_one_that_others_find_it_by(name: str) -> None:
    port = SERVICES[name]["environment"]["GRPC_ADDRESS"].rpartition(":")[2]

    exposed = re.search(r"^EXPOSE (.*)$", dockerfile_of(name).read_text(), re.MULTILINE)

    assert exposed is not None
    assert exposed[1].split() == [port, "8080", "8081"]
    finders = [s["environment"].get("PRICING_ADDRESS") for s in SERVICES.values() if "environment" in s]
    assert {found for found in finders if found} == {"pricing:7401"}
    assert SERVICES["pricing"]["environment"]["GRPC_ADDRESS"] == "0.0.0.0:7401"


def test_the_redis_password_is_in_no_environment_and_on_no_command_line() -> None:
    readers = [name for name, service in SERVICES.items() if "redis-password" in service.get("secrets", [])]

    assert set(readers) == {"redis", *OURS, "story"}
    assert set(COMPOSE["secrets"]["redis-password"]) == {"file"}
    command = " ".join(SERVICES["redis"]["command"])
    assert "--requirepass" not in command
    assert "requirepass" in command
    # `$$` is compose's way to leave a dollar to the shell; the shell must be able to read the rest.
    assert shlex.split(command.replace("$$", "$"))


def test_services_start_when_redis_and_the_sandbox_are_healthy() -> None:
    for name in OURS:
        needs = SERVICES[name]["depends_on"]

        assert needs == {"redis": {"condition": "service_healthy"}, "sandbox": {"condition": "service_healthy"}}


def test_a_service_may_finish_its_work_before_it_is_killed() -> None:
    settings = importlib.import_module("sawhorse_runtime.settings").CommonSettings

    drain = settings.load([], {"CLUSTER_NAME": "x"}, prog="x", description="").drain_timeout.total_seconds()

    for name in OURS:
        assert int(SERVICES[name]["stop_grace_period"].removesuffix("s")) > drain
