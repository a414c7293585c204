"""What people and programs read of a run: outcomes, certificate, failure text, JSON."""
