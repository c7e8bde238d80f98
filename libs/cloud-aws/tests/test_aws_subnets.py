"""Which subnet of a zone a launch uses."""

from sawhorse_cloud_aws.subnets import FULL_SECONDS, SubnetPicker
from sawhorse_model.aws import Subnet

A1, A2, B1 = Subnet("subnet-1", "a"), Subnet("subnet-2", "a"), Subnet("subnet-3", "b")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def a_picker(clock: Clock | None = None, **free: int) -> SubnetPicker:
    picker = SubnetPicker(monotonic=clock or Clock())
    picker.observe({name.replace("_", "-"): count for name, count in free.items()})
    return picker


def test_each_zone_gets_the_subnet_with_most_free_addresses() -> None:
    assert a_picker(subnet_1=5, subnet_2=50, subnet_3=1).choose([A1, A2, B1]) == {"a": "subnet-2", "b": "subnet-3"}


def test_equal_or_unknown_subnets_keep_the_order_of_the_status() -> None:
    assert a_picker().choose([A2, A1]) == {"a": "subnet-2"}
    assert a_picker(subnet_1=7, subnet_2=7).choose([A1, A2]) == {"a": "subnet-1"}


def test_launches_under_way_count_until_the_next_look_up() -> None:
    picker = a_picker(subnet_1=100, subnet_2=90)

    picker.charge("subnet-1", 29)
    assert picker.choose([A1, A2]) == {"a": "subnet-2"}
    picker.charge("subnet-1", -29)
    assert picker.choose([A1, A2]) == {"a": "subnet-1"}
    picker.charge("subnet-1", 29)
    picker.observe({"subnet-1": 95, "subnet-2": 90})
    assert picker.choose([A1, A2]) == {"a": "subnet-1"}


def test_more_is_never_given_back_than_was_taken() -> None:
    picker = a_picker(subnet_1=10, subnet_2=50)

    picker.charge("subnet-1", -100)

    assert picker.choose([A1, A2]) == {"a": "subnet-2"}


def test_a_full_subnet_comes_last_for_three_minutes() -> None:
    clock = Clock()
    picker = a_picker(clock, subnet_1=100, subnet_2=1)

    picker.mark_full("subnet-1")
    assert picker.choose([A1, A2]) == {"a": "subnet-2"}
    picker.observe({"subnet-1": 100, "subnet-2": 1})
    assert picker.is_full("subnet-1")
    clock.now += FULL_SECONDS
    assert picker.choose([A1, A2]) == {"a": "subnet-1"}


def test_a_subnet_that_is_full_again_soon_is_set_aside_for_longer_up_to_half_an_hour() -> None:
    clock = Clock()
    picker = a_picker(clock, subnet_1=100)
    lengths = []

    for _ in range(6):
        picker.mark_full("subnet-1")
        began = clock.now
        while picker.is_full("subnet-1"):
            clock.now += 60
        lengths.append(clock.now - began)

    assert lengths == [180, 360, 720, 1440, 1800, 1800]


def test_a_zone_whose_subnets_are_all_full_is_still_tried() -> None:
    picker = a_picker(subnet_1=1)

    picker.mark_full("subnet-1")

    assert picker.choose([A1]) == {"a": "subnet-1"}
