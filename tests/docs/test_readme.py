"""What the README shows is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def run(code_or_path):
    command = [sys.executable, str(code_or_path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def test_the_quickstart_prints_what_the_readme_says(tmp_path):
    code = blocks("python")[0]
    script = tmp_path / "quickstart.py"
    script.write_text(code, encoding="utf-8")
    expected = re.search(r"```python\n.*?```\s*```text\n(.*?)```", README, flags=re.DOTALL)
    assert expected is not None
    assert run(script) == expected.group(1)


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_every_example_runs(path):
    assert run(path).strip()


def test_the_first_example_is_the_quickstart():
    example = (ROOT / "examples" / "01_quickstart.py").read_text(encoding="utf-8")
    body = example.split('"""', 2)[2]
    assert re.sub(r"\s+", "", body) == re.sub(r"\s+", "", blocks("python")[0])


def test_every_local_link_of_the_docs_leads_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_function_and_test_of_the_paper_map_exists():
    source = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "src").rglob("*.py"))
    tests = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("*.py"))
    for line in (ROOT / "docs" / "paper-map.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 4 or not cells[2].startswith("`"):
            continue
        name = cells[2].strip("`").split(".")[-1]
        assert (
            name in source or (ROOT / "src/trueup" / (cells[2].strip("`").replace(".", "/") + ".py")).exists()
        )
        for test in re.findall(r"`(test_\w+|tests/\S+\.py)`", cells[3]):
            assert (ROOT / test).exists() if "/" in test else f"def {test}(" in tests, test
