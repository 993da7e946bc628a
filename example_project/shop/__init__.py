"""What is there to crawl? An offline shop.

`site` says what it shows, `counts` how much that is, `server` serves it.
"""
