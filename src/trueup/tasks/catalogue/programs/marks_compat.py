import unicodedata


def canonicalise(text):
    kept = []
    for char in unicodedata.normalize("NFKD", text.lower()):
        if not unicodedata.combining(char):
            kept.append(char)
    return " ".join("".join(kept).split())
