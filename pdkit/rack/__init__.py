"""A virtual GB300 NVL72 rack on one Linux machine: real Slurm daemons, one network namespace per node."""
