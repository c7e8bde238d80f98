"""Which pods may be hinted to one node at the same time."""

from sawhorse_model.meta import ObjectMeta
from sawhorse_model.pod import SCHEDULE_ANYWAY, Pod, PodSpec, TopologySpread
from sawhorse_model.selectors import LabelSelector, SelectorExpression
from sawhorse_provisioner.hint_rules import harmless

ZONE = "topology.kubernetes.io/zone"


def pods(
    app: str, count: int, *, skew: int = 0, when: str = "DoNotSchedule", of: str = "", cpu: int = 100
) -> list[Pod]:
    """Pods of an app; with a skew they are spread, and `of` is whose pods that counts."""
    selector = LabelSelector((SelectorExpression("app", "In", (of or app,)),))
    spread = (TopologySpread(skew, ZONE, when, selector),) if skew else ()
    spec = PodSpec(requests={"cpu": cpu}, spread=spread)
    return [Pod(ObjectMeta(name=f"{app}-{n}", namespace="default", labels={"app": app}), spec) for n in range(count)]


def names(found: list[Pod]) -> list[str]:
    """Their names, sorted."""
    return sorted(p.meta.name for p in found)


def test_pods_without_a_spread_are_all_hinted() -> None:
    wanted = pods("web", 5)

    found = harmless([], wanted)

    assert names(found) == names(wanted)


def test_of_spread_pods_only_as_many_as_may_be_ahead_are_hinted_to_a_node() -> None:
    one, two = harmless([], pods("web", 5, skew=1)), harmless([], pods("web", 5, skew=2))

    assert (len(one), len(two)) == (1, 2)


def test_hints_that_stand_count() -> None:
    first, *others = pods("web", 3, skew=1)

    found = harmless([first], others)

    assert found == []


def test_a_wished_spread_holds_nothing_back() -> None:
    found = harmless([], pods("web", 4, skew=1, when=SCHEDULE_ANYWAY))

    assert len(found) == 4


def test_pods_that_a_hinted_pods_spread_counts_are_held_back_too() -> None:
    watcher = pods("watcher", 1, skew=1, of="web")

    found = harmless(watcher, pods("web", 3))

    assert len(found) == 1


def test_a_pod_whose_spread_counts_too_many_hinted_pods_is_held_back() -> None:
    found = harmless(pods("web", 3), [*pods("watcher", 1, skew=2, of="web"), *pods("other", 1)])

    assert names(found) == ["other-0"]


def test_the_largest_of_spread_pods_come_first() -> None:
    small, large = pods("small", 1, skew=1, of="none"), pods("web", 1, cpu=50) + pods("web-large", 1, cpu=900)

    found = harmless([], [*small, *large])

    assert [p.meta.name for p in found] == ["web-large-0", "small-0", "web-0"]
