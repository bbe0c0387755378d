from unicodedata import normalize


def canonicalise(text):
    text = normalize("NFKC", text)
    text = text.casefold()
    return " ".join(text.split())
