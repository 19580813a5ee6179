"""``autofast server``: the Language Server Protocol. ``session`` knows what is found and what would
change, ``protocol`` how editors are told."""
