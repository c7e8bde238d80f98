"""The sawhorse command."""
