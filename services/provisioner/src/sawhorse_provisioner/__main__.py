"""`python -m sawhorse_provisioner`."""

import sys

from sawhorse_provisioner.main import main

if __name__ == "__main__":  # the planning worker imports this module anew
    sys.exit(main())
