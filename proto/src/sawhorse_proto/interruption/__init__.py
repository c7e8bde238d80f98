"""Messages of sawhorse.interruption."""
