"""How is one seen-set shared by several crawls? What lies on a server, and what each crawl keeps of it.

No Scrapy: ``sharing`` and ``sharedmiddleware`` are where a crawl meets it.
"""
