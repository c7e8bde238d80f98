"""Requirements travel to worker processes, whose texts hash differently."""

import os
import pickle
import subprocess
import sys

from sawhorse_model.requirements import Operator, Requirement, Requirements

_LOOK_UP = """
import pickle, sys
from sawhorse_model.requirements import Operator, Requirement, Requirements
received = pickle.load(sys.stdin.buffer)
fresh = Requirements([Requirement.of("zone", Operator.IN, ("a", "b"))])
print({fresh: "found"}.get(received, "lost"))
"""


def test_a_pickled_set_is_found_as_a_key_in_a_process_with_another_hash_seed() -> None:
    wanted = Requirements([Requirement.of("zone", Operator.IN, ("a", "b"))])
    hash(wanted)  # remembered from here on

    answer = subprocess.run(
        [sys.executable, "-c", _LOOK_UP],
        input=pickle.dumps(wanted),
        capture_output=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        timeout=30,
        check=True,
    )

    assert answer.stdout.decode().strip() == "found"
