"""Faults that are done to stores, processes and connections; each proves that it happened."""
