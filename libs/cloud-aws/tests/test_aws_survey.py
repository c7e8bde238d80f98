"""Counting the instance types that a NodeClass rules out."""

from typing import Any

from msgspec import structs

from sawhorse_catalog.aws.node_class import ClassView
from sawhorse_catalog.facts import InstanceFacts
from sawhorse_cloud.errors import ThrottledError
from sawhorse_cloud_aws.survey import FRESH_SECONDS, InstanceTypeSurveyor, survey
from sawhorse_testing.catalog import an_ec2_node_class, an_ec2_type

SMALL = an_ec2_type("m8i.xlarge", valid_cores=(1, 2), zones=("z",))
LARGE = an_ec2_type("c8i.2xlarge", valid_cores=(1, 2, 3, 4), zones=("z",))
CORES = an_ec2_node_class({"cpuOptions": {"coreCount": 4}})


class Source:
    """A list of types that may fail to be fetched."""

    def __init__(self, *facts: InstanceFacts) -> None:
        self.facts, self.calls, self.error, self.now = facts, 0, None, 0.0
        self.surveyor = InstanceTypeSurveyor(fetch=self.fetch, monotonic=lambda: self.now)

    error: Any
    now: float

    async def fetch(self) -> tuple[InstanceFacts, ...]:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.facts


def test_g07_a_core_count_drops_types_visibly() -> None:
    found = survey([SMALL, LARGE], ClassView(core_count=4))

    condition = found.condition()
    assert (found.left, found.total) == (1, 2)
    assert (condition.status, condition.reason) == ("True", "SomeExcluded")
    assert condition.message == (
        "1 of 2 instance types can be used; ruled out are 1: spec.cpuOptions.coreCount is 4, it takes 1, 2 (m8i.xlarge)"
    )


def test_types_that_nobody_could_use_are_not_counted() -> None:
    nowhere = an_ec2_type("m5.large", zones=())

    assert survey([SMALL, LARGE, nowhere], ClassView()).total == 2


def test_of_many_names_a_few_are_shown() -> None:
    many = [structs.replace(SMALL, name=f"m8i.{n}") for n in range(1, 6)]

    assert survey([*many, LARGE], ClassView(core_count=4)).condition().message.endswith("(m8i.1, m8i.2, m8i.3, …)")


async def test_the_list_is_fetched_once_for_many_looks_and_again_after_half_a_day() -> None:
    source = Source(SMALL, LARGE)

    await source.surveyor.condition(CORES)
    await source.surveyor.condition(CORES)
    once = source.calls
    source.now = FRESH_SECONDS + 1
    await source.surveyor.condition(CORES)

    assert (once, source.calls) == (1, 2)


async def test_a_list_that_cannot_be_had_makes_no_class_unready_and_says_so() -> None:
    source = Source()
    source.error = ThrottledError("DescribeInstanceTypes: RequestLimitExceeded")

    condition = await source.surveyor.condition(CORES)

    assert (condition.status, condition.reason) == ("True", "NotLookedAt")
    assert "RequestLimitExceeded" in condition.message


async def test_an_old_list_serves_while_a_new_one_cannot_be_had() -> None:
    source = Source(SMALL, LARGE)
    await source.surveyor.condition(CORES)
    source.error, source.now = ThrottledError("no"), FRESH_SECONDS + 1

    condition = await source.surveyor.condition(CORES)

    assert condition.reason == "SomeExcluded"
