"""Which instance types share one of EC2's quotas of vCPUs: there is one per class and way to buy. Pure."""

# By the letters that a type's name begins with; all others are "standard".
_CLASSES = {
    "dl": "dl",
    "f": "f",
    "g": "g",
    "hpc": "hpc",
    "inf": "inf",
    "p": "p",
    "trn": "trn",
    "u": "u",
    "vt": "g",
    "x": "x",
}
STANDARD = "standard"
EVERY_CLASS = "all"
"""In place of a class: all types that are bought in that way."""


def quota_class(instance_type: str) -> str:
    """The class of a type such as `p4d.24xlarge`."""
    letters = ""
    for character in instance_type:
        if not character.isalpha():
            break
        letters += character
    return _CLASSES.get(letters, STANDARD)
