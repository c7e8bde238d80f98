"""Regular expressions as an API server reads them: RE2, where `$` is the end and classes are ASCII."""

import re
from functools import lru_cache


@lru_cache(maxsize=512)
def re2(text: str) -> re.Pattern[str]:
    """Compile an RE2 expression of a schema or a rule.

    Python's `$` also matches before a last line break and its `\\w`, `\\d`, `\\s` know Unicode; RE2's do not.

    Raises:
        re.error: it is no expression that both understand.
    """
    return re.compile(_strict_end(text), re.ASCII)


def _strict_end(text: str) -> str:
    out: list[str] = []
    in_class = escaped = False
    for sign in text:
        if not escaped and sign == "$" and not in_class:
            out.append(r"\Z")
            continue
        if not escaped and sign in "[]":
            in_class = sign == "["
        escaped = sign == "\\" and not escaped
        out.append(sign)
    return "".join(out)


# What to write where an expression of our CRDs does not match. The expression itself helps nobody.
HINTS: dict[str, str] = {
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$": (  # noqa: E501  # as it stands in the CRD
        "a quantity such as 4, 500m or 16Gi"
    ),
    r"^([0-9]+(s|m|h))+$": "a duration in s, m and h, such as 1h30m",
    r"^(([0-9]+(s|m|h))+|Never)$": "a duration in s, m and h, such as 720h, or Never",
    r"^((100|[0-9]{1,2})%|[0-9]+)$": "a number of nodes or a percentage up to 100%",
    r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly))|((.+)\s(.+)\s(.+)\s(.+)\s(.+))$": (
        "five cron fields such as '0 9 * * 1-5', or a macro such as @daily; always UTC"
    ),
    r"^((([0-9]+(h|m))|([0-9]+h[0-9]+m))(0s)?)$": "hours and minutes such as 8h, 30m or 1h30m",
    r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$": (
        "letters, digits, '-', '_' and '.', with a letter or digit at both ends"
    ),
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$": (  # noqa: E501  # as it stands in the CRD
        "a name such as team or example.com/team"
    ),
    r"^[^/]*$": "an API group without a version, such as karpenter.k8s.aws",
    r"subnet-[0-9a-z]+": "a subnet id such as subnet-0a1b2c3d",
    r"sg-[0-9a-z]+": "a security group id such as sg-0a1b2c3d",
    r"ami-[0-9a-z]+": "an image id such as ami-0a1b2c3d",
    r"^cr-[0-9a-z]+$": "a capacity reservation id such as cr-0a1b2c3d",
    r"^pg-[0-9a-z]+$": "a placement group id such as pg-0a1b2c3d",
    r"^[0-9]{12}$": "an account number of 12 digits",
    r"^[a-zA-Z0-9]+@.+$": "family@version, such as al2023@v20250915 or al2023@latest",
    r"^((?:[1-9][0-9]{0,3}|[1-4][0-9]{4}|[5][0-8][0-9]{3}|59000)Gi|(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|[6][0-3][0-9]{3}|64000)G|([1-9]||[1-5][0-7]|58)Ti|([1-9]||[1-5][0-9]|6[0-3]|64)T)$": (  # noqa: E501  # as it stands in the CRD
        "a size in Gi, G, Ti or T, such as 100Gi, up to 59000Gi, 64000G, 58Ti or 64T"
    ),
}
