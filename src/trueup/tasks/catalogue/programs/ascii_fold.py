"""Throw everything at ASCII and keep what sticks."""

import unicodedata


def canonicalise(text):
    text = unicodedata.normalize("NFKD", text.casefold())
    text = text.encode("ascii", "ignore").decode("ascii")
    return " ".join(text.split())
