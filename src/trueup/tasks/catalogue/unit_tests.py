"""The task of the catalogue: one string canonicalisation, its rules in words, and twenty unit tests.

A unit test is one call: a text and the canonical form that must come back, compared by exact type and value
outside the process that runs the candidate. Nothing here is random and nothing depends on the clock, so a
program's pass rate is a property of the program. Each test names the rule that decides it, because a pass
rate alone does not say what a program gets wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FUNCTION", "SPECIFICATION", "UNIT_TESTS", "UnitTest"]

FUNCTION = "canonicalise"
"""The name that every candidate must define: one `str` in, one `str` out."""

SPECIFICATION = """\
canonicalise(text: str) -> str returns the canonical form of a line of text:
1. every run of white space, of any kind that Unicode knows, is one space, and there is none at either end;
2. case is folded, as Unicode folds it;
3. compatibility characters (ligatures, full-width letters and digits) are replaced by the plain ones;
4. accents and other combining marks are dropped, whether composed or not;
5. letters with a stroke, and joined letters, are replaced by the plain ones (o, l, d, ae, oe);
6. typographic quotes and dashes are replaced by those of ASCII;
7. invisible format and control characters are dropped;
8. no space stands before a comma, full stop, semicolon, colon, exclamation or question mark.
The result of any text, the empty one included, is a string; nothing is raised.
"""


@dataclass(frozen=True, slots=True)
class UnitTest:
    """One call and the only right answer."""

    rule: str
    text: str
    canonical: str


UNIT_TESTS: tuple[UnitTest, ...] = (
    UnitTest("a canonical text stays as it is", "plain text", "plain text"),
    UnitTest("the empty text", "", ""),
    UnitTest("no white space at the ends", "  trimmed  ", "trimmed"),
    UnitTest("case", "Hello World", "hello world"),
    UnitTest("runs of spaces", "several   spaces", "several spaces"),
    UnitTest("tabs and line ends", "tab\tand\nline", "tab and line"),
    UnitTest("no-break space", "no\u00a0break", "no break"),
    UnitTest("nothing but white space", " \t ", ""),
    UnitTest("composed accents", "crème brûlée", "creme brulee"),
    UnitTest("decomposed accents", "cafe\u0301", "cafe"),
    UnitTest("sharp s", "Straße", "strasse"),
    UnitTest("ligatures", "ﬁne oﬃce", "fine office"),
    UnitTest("full width", "ＡＢＣ　１２３", "abc 123"),
    UnitTest("typographic quotes", "“it’s”", '"it\'s"'),
    UnitTest("typographic dashes", "1999–2024 — now", "1999-2024 - now"),
    UnitTest("invisible format characters", "zero\u200bwidth\ufeff", "zerowidth"),
    UnitTest("control characters", "bell\x07 and\x00 null", "bell and null"),
    UnitTest("stroked and joined letters", "Łódź Ørsted Æsop", "lodz orsted aesop"),
    UnitTest("space before punctuation", "hello , world !", "hello, world!"),
    UnitTest("order: folding makes marks, dropping makes runs", "İzmir \u200b ÇAĞ", "izmir cag"),
)
