"""Messages of sawhorse.provisioner."""
