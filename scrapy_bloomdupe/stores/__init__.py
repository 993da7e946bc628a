"""Was this key certainly seen? Exact stores; see ``base`` for the contract."""
