"""Which settings do all spiders here share? None about duplicates: that is for the lessons."""

import os

BOT_NAME = "shop_crawl"
SPIDER_MODULES = ["shop_crawl.spiders"]
LOG_LEVEL = "INFO"

# The shop stands on this machine and belongs to us: as fast as it can answer. For other people's
# sites keep what Scrapy's project template says: one request at a time, a second apart.
ROBOTSTXT_OBEY = False
AUTOTHROTTLE_ENABLED = False
DOWNLOAD_DELAY = 0
CONCURRENT_REQUESTS_PER_DOMAIN = 8

RETRY_ENABLED = True
RETRY_TIMES = 2
COOKIES_ENABLED = True
# Nobody looks into a crawl of a few seconds: no ports opened, no job file written to the home
# directory.
TELNETCONSOLE_ENABLED = False
REMOTE_CONTROL_ENABLED = False

EXTENSIONS = {"shop_crawl.stats_json.StatsJson": 900}

# At the first cookie Scrapy asks tldextract what a public suffix is, and that fetches a list from
# the internet. The shop is offline: the list that comes with tldextract will do (versions before
# 5.4 try, for a second, and go on).
os.environ.setdefault("TLDEXTRACT_PUBLIC_SUFFIX_LIST_URLS", "")
os.environ.setdefault("TLDEXTRACT_CACHE_TIMEOUT", "1")
