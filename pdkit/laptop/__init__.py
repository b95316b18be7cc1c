"""What lets the rack's engines run on a laptop without GPU: packages, workarounds, tiny models. Never used on a GPU."""
