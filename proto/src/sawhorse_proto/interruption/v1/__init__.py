"""Version 1 of sawhorse.interruption."""
