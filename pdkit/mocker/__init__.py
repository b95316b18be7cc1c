"""Played engines for rehearsals: real processes, real Dynamo, real ports and requests, but nothing is computed."""
