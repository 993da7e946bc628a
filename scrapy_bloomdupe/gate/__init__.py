"""Is this text known to exist at all? An allow list in a Bloom filter's file."""
