"""Bundled environments. They exist to be measured on: small, deterministic, and honest about what they leave out."""
