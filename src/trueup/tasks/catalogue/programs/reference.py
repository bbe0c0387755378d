import re
import unicodedata

LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ŧ": "t", "æ": "ae", "œ": "oe", "ı": "i"})
QUOTES = dict.fromkeys("“”„‟«»", '"') | dict.fromkeys("‘’‚‛", "'")
DASHES = dict.fromkeys("‐‑‒–—―−", "-")
TYPOGRAPHY = str.maketrans(QUOTES | DASHES)


def keep(char):
    category = unicodedata.category(char)
    return char.isspace() or category not in ("Mn", "Cf", "Cc")


def canonicalise(text):
    text = unicodedata.normalize("NFKD", text.casefold())
    text = "".join(filter(keep, text)).casefold()
    text = text.translate(LETTERS).translate(TYPOGRAPHY)
    text = " ".join(text.split())
    return re.sub(r" +([,.;:!?])", r"\1", text)
