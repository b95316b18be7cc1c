"""One function per rule, over a recipe and its plan."""
