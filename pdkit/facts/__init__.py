"""What the world is: models, hardware, engine versions."""
