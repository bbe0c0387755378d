import re


def canonicalise(text):
    return re.sub(" +", " ", text).strip().lower()
