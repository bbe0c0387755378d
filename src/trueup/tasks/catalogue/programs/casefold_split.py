def canonicalise(text):
    # casefold, not lower: it also opens the sharp s
    return " ".join(text.casefold().split())
