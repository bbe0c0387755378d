def canonicalise(text):
    return text.strip().lower()
