"""What those rely on who carry the project on: fragments, one version, locks that agree, one command for checks."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import tandemq

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
KINDS = [kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]]


# The changelog --------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """What towncrier needs of the project, with one fragment of each kind and nobody else's."""
    for name in (
        "pyproject.toml",
        "CHANGELOG.md",
        "changes/README.md",
        "changes/template.md",
        "src/tandemq/__init__.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    for kind in KINDS:
        (tmp_path / "changes" / f"+one.{kind}.md").write_text(f"Something was {kind}.\n")
    return tmp_path


def towncrier(directory: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "towncrier", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_draft_shows_every_kind_of_fragment(project: Path) -> None:
    draft = towncrier(project, "build", "--draft", "--version", "9.9.9")
    assert "## 9.9.9 (" in draft
    assert [f"### {kind.capitalize()}\n\n- Something was {kind}.\n" in draft for kind in KINDS] == [True] * 4


def test_a_release_goes_above_the_older_ones(project: Path) -> None:
    towncrier(project, "build", "--yes", "--version", "9.9.9")
    text = (project / "CHANGELOG.md").read_text()
    assert text.index("## 9.9.9 (") < text.index("## 0.1.0")
    assert text.startswith("# Changelog\n")


def test_the_fragments_at_hand_have_a_known_kind() -> None:
    """`changes/NAME.KIND.md`; towncrier passes over a misspelt kind without a word."""
    names = [path.name for path in (ROOT / "changes").glob("*.md") if path.name not in {"README.md", "template.md"}]
    assert [name for name in names if not re.fullmatch(rf"\+?[\w.-]+\.({'|'.join(KINDS)})(\.\d+)?\.md", name)] == []


# Version and dependencies ---------------------------------------------------------------------------------------------


def test_the_version_has_one_place() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "tandemq.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", tandemq.__version__)


def locked(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements" / f"{name}.lock").read_text(), re.M))


def wanted(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=\[ ]", text)[0] for text in requirements}


def test_the_locks_agree() -> None:
    """Each lock holds the smaller ones, in the same versions, with hashes."""
    broker, spark, everything = locked("broker"), locked("spark"), locked("all")
    assert broker.items() <= spark.items() <= everything.items()
    for name in ("broker", "spark", "all"):
        text = (ROOT / "requirements" / f"{name}.lock").read_text()
        assert text.count("--hash=sha256:") >= len(locked(name))
        assert "://" not in text


def test_the_locks_hold_what_the_package_needs() -> None:
    project = PROJECT["project"]
    assert wanted(project["dependencies"]) <= set(locked("broker"))
    assert wanted(project["optional-dependencies"]["spark"]) <= set(locked("spark"))
    assert "pyspark" not in locked("broker")


# One command ----------------------------------------------------------------------------------------------------------


def test_the_workflow_runs_what_everybody_runs() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    steps = workflow["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("exec ./run test")


def test_a_commit_passes_the_same_checks() -> None:
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    hooks = {hook["id"]: hook for hook in repository["hooks"]}
    assert hooks["checks"]["entry"] == "./run check"
    assert not hooks["checks"]["pass_filenames"]
