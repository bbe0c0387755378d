"""One static page of what an experiment found, and its figures as files.

    results dict → `data` (checked, missing is NaN or None, never 0) → `figures` (the only matplotlib)
                                                                      → `reading` (sentences from the numbers)
                                                                      → `page` (the only jinja2) → report.html

The page opens without a network: figures are inline SVG, styles are in the page, and there is no script.
"""

from trueup.report.write import write_report

__all__ = ["write_report"]
