"""`python -m sawhorse_interruption`."""

import sys

from sawhorse_interruption.main import main

sys.exit(main())
