"""A language model that writes programs, trained on anchored rewards; see docs/strings.md."""
