import unicodedata

QUOTES = {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "‚": "'"}
DASHES = "‐‑‒–—―−"


def printable(char):
    return char.isspace() or ord(char) > 31


def canonicalise(text):
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text).casefold())
    result = ""
    for char in text:
        if char in DASHES:
            char = "-"
        char = QUOTES.get(char, char)
        if printable(char) and unicodedata.category(char) != "Mn":
            result += char
    return " ".join(result.split())
