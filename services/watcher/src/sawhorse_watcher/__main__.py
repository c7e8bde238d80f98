"""`python -m sawhorse_watcher`."""

import sys

from sawhorse_watcher.main import main

if __name__ == "__main__":
    sys.exit(main())
