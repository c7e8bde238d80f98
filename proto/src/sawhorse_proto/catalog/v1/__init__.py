"""Version 1 of sawhorse.catalog."""
