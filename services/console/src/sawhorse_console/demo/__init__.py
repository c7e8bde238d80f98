"""`sawhorse demo`: the whole system in the embedded world, from pending pods through a spot interruption.

`story` tells it, `view` shows it, `report` sums it up. It never touches a real cluster: the world is made by
`sawhorse_sandbox` and is gone at the end.
"""
