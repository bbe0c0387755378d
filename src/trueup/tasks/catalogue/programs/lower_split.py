def canonicalise(text):
    return " ".join(text.lower().split())
