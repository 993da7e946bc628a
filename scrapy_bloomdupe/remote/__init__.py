"""How is a server asked? Addresses, names of keys, one client, a circuit breaker, what a key says of itself.

The ground that the filters and stores on a server stand on. They know what is asked; this knows how.
"""
