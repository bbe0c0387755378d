def canonicalise(text):
    words = text.split()
    return " ".join(words)
