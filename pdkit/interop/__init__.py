"""Recipes of other tools: srt-slurm's are read, checked and converted."""
