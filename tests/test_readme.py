"""Every Python snippet of the README runs, in order, against the embedded server."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from mantyx_sync.local import LocalGateway, LocalServer, OAuthApp
from mantyx_sync.loom import LoomClient
from tests.loom_double.caller import Caller
from tests.processes import environment

README = Path(__file__).parent.parent / "README.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_every_snippet_runs_in_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert len(SNIPPETS) >= 12
    shop = OAuthApp("mantyx_oa_shop", "mantyx_oas_secret", refresh_tokens=["mantyx_rt_shop"])
    monkeypatch.setenv("SHOP_CLIENT_SECRET", shop.client_secret)
    monkeypatch.setenv("SHOP_REFRESH_TOKEN", "mantyx_rt_shop")
    (tmp_path / "examples").symlink_to(README.parent / "examples")  # commands in it are relative
    monkeypatch.chdir(tmp_path)
    # The service of Loom is nothing that a machine without a project has.
    monkeypatch.setattr(LoomClient, "connect", lambda: LoomClient(Caller(), entry="/mcp"))
    with LocalServer(oauth_apps=[shop]) as server, LocalGateway() as gateway:
        monkeypatch.setenv("SPACEFIX_URL", gateway.url)
        monkeypatch.setenv("SPACEFIX_AGENT_KEY", gateway.add_project().agent_key)
        settings = server.client_settings()
        monkeypatch.setenv("MANTYX_API_KEY", settings["api_key"])
        monkeypatch.setenv("MANTYX_WORKSPACE_SLUG", settings["workspace_slug"])
        monkeypatch.setenv("MANTYX_BASE_URL", settings["base_url"])
        module = types.ModuleType("readme")
        monkeypatch.setitem(sys.modules, "readme", module)  # where type hints are looked up
        for number, snippet in enumerate(SNIPPETS):
            exec(compile(snippet, f"README.md, snippet {number}", "exec", dont_inherit=True), vars(module))
        module.client.close()
    assert "shipped" in capsys.readouterr().out


def test_the_two_first_commands_are_printed_as_commands() -> None:
    block = README.read_text(encoding="utf-8").split("<!-- first commands -->\n```bash\n")[1].split("```")[0]
    commands = block.strip().splitlines()
    assert len(commands) == 2
    assert "examples/quickstart.py" in commands[0]
    assert commands[1].endswith("-m pytest -n 2")


def test_the_tests_it_shows_pass_as_tests(tmp_path: Path) -> None:
    shown = next(snippet for snippet in SNIPPETS if "mantyx_server" in snippet)
    tool = SNIPPETS[0].split("client = ")[0]  # its imports and `get_order`
    (tmp_path / "test_shown.py").write_text(tool + shown, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mantyx_sync.pytest_plugin", "-p", "no:cacheprovider", "."]
    env = environment({"api_key": "", "workspace_slug": "", "base_url": ""})
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
