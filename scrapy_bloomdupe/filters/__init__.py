"""Was this key possibly seen? Bloom filters in a file; see ``base`` for the contract."""
