"""The report as one HTML page: self-contained, and safe whatever a store put into its values."""

from .page import render

__all__ = ["render"]
