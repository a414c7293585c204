"""The rules as tests: one module a profile, composed into one class a backend."""

from .conformance import catalogue, conformance

__all__ = ["catalogue", "conformance"]
