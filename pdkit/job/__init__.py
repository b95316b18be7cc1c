"""What runs inside the allocation: ready, gate, sweep."""
