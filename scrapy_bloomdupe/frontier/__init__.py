"""The frontier: pending requests, kept in one transaction with what was seen."""
