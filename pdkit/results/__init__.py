"""Measured points, the frontier and the report."""
