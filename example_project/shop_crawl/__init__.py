"""What does a Scrapy project with scrapy-bloomdupe look like? `spiders/` has a lesson per file."""
