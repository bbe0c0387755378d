import unicodedata

TABLE = str.maketrans(
    {
        "“": '"',
        "”": '"',
        "‘": "'",
        "’": "'",
        "–": "-",
        "—": "-",
        "−": "-",
        "ł": "l",
        "ø": "o",
        "đ": "d",
        "æ": "ae",
        "œ": "oe",
    }
)


def canonicalise(text):
    text = unicodedata.normalize("NFKD", text.casefold()).translate(TABLE)
    kept = [c for c in text if unicodedata.category(c) not in ("Mn", "Cf") and (c >= " " or c.isspace())]
    return " ".join("".join(kept).split())
