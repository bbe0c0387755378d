import unicodedata

QUOTES = {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "‚": "'"}
DASHES = "‐‑‒–—―−"


def canonicalise(text):
    text = unicodedata.normalize("NFKD", text)
    text = "".join(c for c in text if not unicodedata.combining(c))
    text = text.casefold()
    for quote, plain in QUOTES.items():
        text = text.replace(quote, plain)
    for dash in DASHES:
        text = text.replace(dash, "-")
    text = " ".join(text.split())
    return "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Cc"))
