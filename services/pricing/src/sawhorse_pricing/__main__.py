"""`python -m sawhorse_pricing`."""

import sys

from sawhorse_pricing.main import main

if __name__ == "__main__":
    sys.exit(main())
