"""When are two URLs the same page, and what is the page's key? See ``ruleset`` for the question."""
