"""Judging recorded histories: linear checks, and the search for a legal order."""
