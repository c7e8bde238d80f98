"""Raw cloud facts and a NodeClass in, resolved instance types out. Pure."""
