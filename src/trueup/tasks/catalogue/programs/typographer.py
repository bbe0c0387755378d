import unicodedata

TYPOGRAPHY = str.maketrans("“”‘’–—−", "\"\"''---")


def canonicalise(text):
    text = unicodedata.normalize("NFKD", text.casefold()).translate(TYPOGRAPHY)
    text = "".join(c for c in text if not unicodedata.combining(c) and unicodedata.category(c) != "Cf")
    text = " ".join(text.split())
    for mark in ",.;:!?":
        text = text.replace(" " + mark, mark)
    return text
