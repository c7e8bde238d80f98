"""`sawhorse allocatable-diff`: what the catalogue expects of each node beside what the node reports."""
