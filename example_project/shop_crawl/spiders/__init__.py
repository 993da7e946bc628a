"""Which lesson is where? Each numbered spider is one; start with s01."""
