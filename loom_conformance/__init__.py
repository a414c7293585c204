"""A pytest plugin that finds out what an event store really does."""
