"""Checks of a machine: what a recipe needs from this node and its engines."""
