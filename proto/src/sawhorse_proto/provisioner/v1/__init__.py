"""Version 1 of sawhorse.provisioner."""
