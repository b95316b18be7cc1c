"""Everything decided, with the reason for each decision; pure."""
