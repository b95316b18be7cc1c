"""pdkit: from a YAML recipe to a proven and measured prefill/decode deployment."""

__version__ = "0.1.0"
