"""Messages of sawhorse.catalog."""
