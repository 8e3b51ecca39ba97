"""Makes the pictures of docs/console.md and the README from a pair that runs: `python docs/shots.py`.

Needs Chromium and the environment of `./run test`. The pair lives in a temporary directory and is gone afterwards.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tandemq.cli.local_cluster import LocalCluster

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "docs" / "console"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
SIZE = {"width": 1200, "height": 720}


def tandemq(*arguments: str, namesrv: str = "", stdin: bytes = b"") -> str:
    environment = {**os.environ, "NAMESRV_ADDR": namesrv, "TERM": "dumb"}
    command = [sys.executable, "-m", "tandemq", *arguments]
    return subprocess.run(command, input=stdin, env=environment, capture_output=True, check=True).stdout.decode()


def fill(namesrv: str) -> None:
    """A shop: orders, a reader that is behind."""
    orders = "".join(
        json.dumps({"order": f"order-{n}", "state": "paid", "amount": {"value": 129.9, "currency": "EUR"}}) + "\n"
        for n in range(400)
    )
    tandemq("topic", "create", "orders", "--queues", "4", namesrv=namesrv)
    tandemq("send", "orders", "--tag", "paid", "--key", "order", namesrv=namesrv, stdin=orders.encode())
    tandemq("consume", "orders", "--group", "billing", "--from", "earliest", "--limit", "300", namesrv=namesrv)
    tandemq("send", "orders", "--count", "3000", "--size", "900", namesrv=namesrv)


def take(page: Page, url: str, name: str, settled: str) -> None:
    page.goto(url)
    page.locator(settled).first.wait_for()
    page.screenshot(path=TARGET / f"{name}.png")
    print(f"docs/console/{name}.png {(TARGET / f'{name}.png').stat().st_size >> 10} KiB")


def main() -> None:
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    if browser_path is None:
        sys.exit("no Chromium: apt-get install chromium")
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        told = json.loads(tandemq("up", "--dir", directory, "--detach", "--json"))
        try:
            fill(told["namesrv"])
            browser = playwright.chromium.launch(executable_path=browser_path, args=FLAGS)
            page = browser.new_context(viewport=SIZE).new_page()  # type: ignore[arg-type]
            console = told["console"]
            take(page, f"{console}/cluster", "cluster", ".plot canvas")
            take(page, f"{console}/messages?topic=orders&how=key&value=order&pick=broker-a/0@0", "messages", ".steps")
            take(page, f"{console}/groups/billing?topic=orders&to=latest", "group", "#reset tbody")
            cluster = LocalCluster.load(Path(directory))
            assert cluster is not None
            page.goto(f"{console}/replication")
            page.locator(".lane").nth(1).wait_for()
            cluster.kill(cluster.plan.master)
            page.get_by_text("no master for").first.wait_for()
            page.screenshot(path=TARGET / "replication.png")
            dark = browser.new_context(viewport=SIZE, color_scheme="dark").new_page()  # type: ignore[arg-type]
            take(dark, f"{console}/replication", "replication-dark", ".lane")
            browser.close()
        finally:
            tandemq("down", "--dir", directory)


if __name__ == "__main__":
    main()
