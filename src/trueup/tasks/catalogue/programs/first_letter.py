import unicodedata


def canonicalise(text):
    text = unicodedata.normalize("NFKC", text).strip()
    head = text[0]  # a name starts with a letter
    return " ".join((head.casefold() + text[1:].casefold()).split())
