"""What a person writes, read and checked."""
