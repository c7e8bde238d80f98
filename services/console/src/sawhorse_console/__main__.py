"""`python -m sawhorse_console` is the `sawhorse` command."""

from sawhorse_console.main import main

main()
