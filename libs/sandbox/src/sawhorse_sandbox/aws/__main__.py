"""Entry point of the server process."""

import os
import sys

if __name__ == "__main__":
    # Before moto is imported: it would load 1,300 images that nobody here launches, and search them for every instance.
    os.environ["MOTO_EC2_LOAD_DEFAULT_AMIS"] = "false"
    from sawhorse_sandbox.aws.server import main

    sys.exit(main())
