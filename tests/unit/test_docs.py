"""The documents against the code: generated pages are fresh, links lead somewhere, commands and options exist."""

import ast
import asyncio
import importlib.util
import re
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tandemq.broker.broker import Broker
from tandemq.broker.config import BrokerConfig
from tandemq.broker.telemetry.prometheus import scrape
from tandemq.cli.examples import EXAMPLES
from tandemq.cli.local_cluster import LocalCluster, new_plan
from tandemq.cli.main import NOUNS
from tandemq.cli.up import PROGRAM, next_steps
from tandemq.cli.upstream_keys import IGNORED
from tandemq.namesrv.metrics import render_metrics
from tandemq.namesrv.routes import RouteTable
from tandemq.remoting.config import RemotingConfig
from tandemq.remoting.server import RemotingServer
from tandemq.replication import master_state, slave_state
from tandemq.replication.following.core import SlavePhase
from tandemq.replication.mastership.core import Phase
from tandemq.replication.session import SessionState
from tandemq.store.config import StoreConfig

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [
        *(
            ROOT / name
            for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "bench/README.md", "changes/README.md")
        ),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "decisions").glob("*.md"),
    ]
)
WRITTEN = [page for page in PAGES if "Generated from the code" not in page.read_text()]
RUN_COMMANDS = {"test", "check", "lock", "wheel", "audit", "fuzz"}
"""What ./run does itself; everything else it passes on."""
NOT_OPTIONS = frozenset(
    """
    clusterList brokerStatus consumerProgress haStatus updateBrokerConfig getBrokerConfig updateTopic
    cloneGroupOffset updateNamesrvConfig setConsumeMode getBrokerEpoch getColdDataFlowCtrInfo
    brokerAddr readStream writeStream stateVersion dataVersion byteRange
    groupIdPrefix timestampType endOffset latestOffset avgBytesBehindLatest avgOffsetsBehindLatest
    maxOffsetsBehindLatest minOffsetsBehindLatest estimatedTotalBytesBehindLatest
    """.split()  # noqa: SIM905  a wall of quotes is harder to read
)
"""camelCase words that are something else: mqadmin's commands, names on the wire, Spark's methods,
Kafka's options and metrics."""


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)


# Generated pages ------------------------------------------------------------------------------------------------------


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["configuration.md", "cli.md", "requests.md"])
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    """After a change of an option, a command or a handler: `python docs/generate.py`."""
    assert (ROOT / "docs" / name).read_text() == generator().PAGES[name](), "run `python docs/generate.py`"


@cache
def declared_options() -> dict[str, set[str]]:
    """Module -> the names, aliases included, that its calls of `setting(...)` declare."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "src").rglob("*.py"):
        text = path.read_text()
        if "setting(" not in text:
            continue
        for call in ast.walk(ast.parse(text)):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "setting":
                names = found.setdefault(path.relative_to(ROOT / "src" / "tandemq").as_posix(), set())
                names.add(ast.literal_eval(call.args[0]))
                for keyword in call.keywords:
                    if keyword.arg == "aliases":
                        names.update(ast.literal_eval(keyword.value))
    return found


def test_every_option_of_a_daemon_or_client_is_documented() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    modules = {name: keys for name, keys in declared_options().items() if name.endswith("/config.py")}
    assert len(modules) >= 6
    assert [key for keys in modules.values() for key in keys if f"`{key}`" not in page] == []


def test_every_command_is_documented() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    assert [path for path in commands() if f"`{path}`" not in page] == []


# Links ----------------------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """GitHub's names of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


# Commands -------------------------------------------------------------------------------------------------------------


@cache
def commands() -> dict[str, Any]:
    """`tandemq noun sub` -> its click command."""
    found = {}

    def add(path: str, command: Any) -> None:
        found[path] = command
        for name, member in getattr(command, "commands", {}).items():
            add(f"{path} {name}", member)

    for noun, (module, _) in NOUNS.items():
        add(f"tandemq {noun}", typer.main.get_command(importlib.import_module(module).app))
    return found


def written_commands(text: str) -> list[str]:
    """`tandemq …` and `./run …` in code blocks, at the start of a line, and in inline code."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, flags=re.M | re.S)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    lines += [line for line in text.splitlines() if line.startswith("    ")]
    lines += [code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", without_code(text))]
    pattern = re.compile(r"^\s*(?:\$ )?(?:ExecStart=\S*/)?((?:tandemq|\./run) .+)$")
    return [match[1] for line in lines if (match := pattern.match(line)) is not None]


def first_command(line: str) -> list[str]:
    """Returns the words of a line up to a comment, a pipe, a redirection or a second command."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|<>&;")
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if word[0] in "|<>&;":
            break
        words.append(word)
    return words


def problem_of(written: str) -> str:
    """What is wrong with a command line in a document; empty if nothing is."""
    words = [word for word in first_command(written.replace("…", "")) if word not in ("\\", "[", "]")]
    program, *rest = words
    if rest[:1] == ["--context"]:
        rest = rest[2:]
    if not rest or not re.fullmatch(r"[a-z][a-z0-9-]*", rest[0]):
        return ""  # `tandemq WHAT`, `./run --help`
    if program == "./run" and (rest[0] in RUN_COMMANDS or rest[0] == "bench"):
        return ""
    path = f"tandemq {rest[0]}"
    if path not in commands():
        return f"no command {rest[0]}"
    rest = rest[1:]
    while rest and f"{path} {rest[0]}" in commands():
        path = f"{path} {rest.pop(0)}"
    command = commands()[path]
    if getattr(command, "commands", {}) and rest and re.fullmatch(r"[a-z]+", rest[0]):
        return f"{path} has no command {rest[0]}"
    if (
        rest
        and re.match(r"[^-A-Z]", rest[0])
        and all(parameter.param_type_name == "option" for parameter in command.params)
    ):
        return f"{path} takes no {rest[0]}"
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    flags = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
    unknown = [flag for flag in flags if flag not in known and flag != "--help"]
    return f"{path} has no {', '.join(unknown)}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_commands_in_documents_exist(page: Path) -> None:
    """Noun, subcommand and flags of every command line a reader could copy."""
    problems = {line: problem for line in written_commands(page.read_text()) if (problem := problem_of(line))}
    assert problems == {}


def test_what_up_tells_a_newcomer_to_try_next_exists(tmp_path: Path) -> None:
    lines = next_steps(LocalCluster(tmp_path, new_plan(slaves=1, sync=True))).splitlines()
    assert [problem_of(line) for line in lines if line.startswith(PROGRAM)] == [""] * 5


def test_every_command_has_examples_that_exist() -> None:
    """A noun and each of its commands: lines that a reader can copy."""
    assert [path for path in commands() if path not in EXAMPLES] == []
    assert [path for path in EXAMPLES if path not in {"tandemq", *commands()}] == []
    wrong = {line: problem for lines in EXAMPLES.values() for line in lines if (problem := problem_of(line))}
    assert wrong == {}
    assert [path for path, lines in EXAMPLES.items() if not any(line.startswith(path) for line in lines)] == []


def test_a_wrong_command_would_be_noticed() -> None:
    assert problem_of("tandemq spark stats /a/store") != ""
    assert problem_of("tandemq topics list") != ""
    assert problem_of("./run topic lists") != ""
    assert problem_of("tandemq ha status --jsn") != ""
    assert problem_of("tandemq ha status --json") == ""
    assert written_commands("text `tandemq sim --seeds 5` and\n\n    ./run up   # starts\n") != []


# Options --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", WRITTEN, ids=page_name)
def test_options_in_documents_exist(page: Path) -> None:
    """A camelCase word in backticks, or a key=value line of a property file, is an option that we or RocketMQ have."""
    known = {name for names in declared_options().values() for name in names} | IGNORED | NOT_OPTIONS
    text = page.read_text()
    words = re.findall(r"`([a-z]+[A-Z]\w*)(?:=[^`]*)?`", without_code(text))
    for block in re.findall(r"^```(?:properties|ini)\n(.*?)^```", text, flags=re.M | re.S):
        words += re.findall(r"^([a-z]+[A-Z]\w*) ?=", block, flags=re.M)
    assert sorted(set(words) - known) == []


# Walks ----------------------------------------------------------------------------------------------------------------

WALK_REFERENCE = re.compile(r"`([a-z_0-9]+(?:/[a-z_0-9]+)*\.py)`(?:\s+`([\w.]+)`)?|`([A-Z]\w+\.\w+)`")


def walk_references() -> list[tuple[str, str]]:
    """Returns (file, name) of all that the walks of docs/hacking.md point to; a name alone is in the file before."""
    text = (ROOT / "docs" / "hacking.md").read_text()
    found, file = [], ""
    for match in WALK_REFERENCE.finditer(text[text.index("## Walks") :]):
        file = match[1] or file
        found.append((file, match[2] or match[3] or ""))
    return found


def defines(path: Path, name: str) -> bool:
    """Whether a file has a class, a function or a `Class.method` of this name."""
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    for part in name.split("."):
        kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        found = next((node for node in body if isinstance(node, kinds) and node.name == part), None)
        if found is None:
            return False
        body = found.body
    return True


def test_the_walks_lead_through_files_and_functions_that_exist() -> None:
    """Whoever moves or renames a function on the way corrects the walk."""
    references = walk_references()
    assert len(references) > 40
    assert [
        f"{file} {name}"
        for file, name in references
        if not (path := ROOT / "src" / "tandemq" / file).exists() or (name and not defines(path, name))
    ] == []


def test_files_in_architecture_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    files = {file for file, _, _ in WALK_REFERENCE.findall(text) if "/" in file}
    rooms = set(re.findall(r"^\| `(\w+)` \|", text, flags=re.M))
    assert len(files) > 10
    assert [name for name in files if not (ROOT / "src" / "tandemq" / name).exists()] == []
    assert rooms == {path.parent.name for path in (ROOT / "src" / "tandemq").glob("*/__init__.py")}


# Metrics --------------------------------------------------------------------------------------------------------------


def metric_names(pieces: Iterable[str]) -> set[str]:
    return set(re.findall(r"^# TYPE (\w+) (?:gauge|counter|histogram)$", "".join(pieces), flags=re.M))


def test_every_metric_is_documented(tmp_path: Path) -> None:
    """docs/operations.md lists what GET /metrics shows, on broker and name server."""

    async def names_of_a_broker() -> set[str]:
        broker = Broker(
            BrokerConfig(broker_name="b", broker_ip1="127.0.0.1", store_path_root_dir=str(tmp_path)),
            StoreConfig(commit_log_segment_size=1 << 16, index_slots=64, index_entries=64),
            RemotingConfig(listen_port=0, bind_address="127.0.0.1"),
        )
        async with broker:
            return metric_names(scrape(broker))

    page = (ROOT / "docs" / "operations.md").read_text()
    namesrv = render_metrics(RouteTable(), RemotingServer(RemotingConfig(listen_port=0), {}).status())
    names = asyncio.run(names_of_a_broker()) | metric_names(namesrv)
    assert len(names) > 20
    assert sorted(name for name in names if f"`{name}`" not in page) == []


# States ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "states"), [(master_state, Phase), (slave_state, SlavePhase)])
def test_diagrams_have_the_states_that_there_are(module: Any, states: Any) -> None:
    """The diagram at the top of a state machine names every state, and none that the table lacks."""
    drawn = [line for line in module.__doc__.splitlines() if "─▶" in line or "──▲" in line or "──┘" in line]
    words = {word for line in drawn for word in re.findall(r"\b[A-Z]{4,}\b", line)} - {"WELCOME"}
    assert words == set(states.__members__)


def test_the_page_on_replication_names_every_state() -> None:
    """In the words that `tandemq ha status` shows."""
    section = (ROOT / "docs" / "replication.md").read_text().partition("## States")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([a-z ]+)`", section.replace("\n", " ")))
    assert {state.value for table in (Phase, SlavePhase, SessionState) for state in table} - told == set()
