"""`sawhorse validate`: the verdicts of an API server that has our CRDs, without one, and our advice beside them.

`judge` gives the verdict on one object: metadata, structural schema, CEL rules. `lint` holds what is legal and still
hardly meant, a module each. `command` reads files, puts both together and prints.
"""
