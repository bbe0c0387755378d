import unicodedata

PLAIN = str.maketrans("“”„‘’‚", "\"\"\"'''")


def canonicalise(text):
    text = unicodedata.normalize("NFKD", text.casefold()).translate(PLAIN)
    text = "".join(char for char in text if not unicodedata.combining(char))
    return " ".join(text.split())
