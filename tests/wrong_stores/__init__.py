"""Deliberately wrong stores, one fault each, and correct variants that must pass."""
