"""A stand-in for Dynamo and vLLM: real processes that speak the protocol of the real ones, and lie when told to."""
