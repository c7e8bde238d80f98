"""A test double of AWS: moto's server in a process of its own, with what a node autoscaler needs and moto lacks.

It imitates the answers, not the scale or the timing of AWS. Importing this package does not import moto.
"""

from sawhorse_sandbox.aws.account import SeededAccount, seed_account
from sawhorse_sandbox.aws.process import AwsSandbox, ControlError, start_aws

__all__ = ["AwsSandbox", "ControlError", "SeededAccount", "seed_account", "start_aws"]
