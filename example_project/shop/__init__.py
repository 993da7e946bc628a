"""What is there to crawl? An offline shop.

`site` says what it shows, `counts` how much that is, `server` serves it. `tmall` is another one, with
URLs like those of Tmall; the same server serves it as a proxy. `walk` says what a crawl of either
comes to, whatever it takes for a duplicate.
"""
