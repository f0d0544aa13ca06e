"""`python -m examples.support_desk`: the desk, its inbox, and Slack if there are tokens for it."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from abeyance.cli.errors import code_of, print_error
from abeyance.dev.stack import Plan, Stack, with_stack
from abeyance.errors import AbeyanceError
from abeyance.http import HttpClient
from abeyance.token_file import add_token

_HERE: Final = Path(__file__).resolve().parent
_TOKENS: Final = ("ABEYANCE_SLACK_BOT_TOKEN", "ABEYANCE_SLACK_APP_TOKEN")
_TEMPORAL_PORT: Final = 7233
_MAY: Final = ("runs:start", "runs:read", "runs:respond", "refunds:approve")
_LETTERS: Final = ("A-7: 120 euros, late. A-8: 30 euros, late.", "B-1: 40 euros, broken.")


def about_slack(environment: Mapping[str, str]) -> str:
    """Say in a line whether questions go to Slack, and what is missing if they do not."""
    if missing := [name for name in _TOKENS if not environment.get(name)]:
        return (
            f"questions stay in the inbox; to have them in Slack, set {' and '.join(missing)} "
            "(docs/how-to/slack.md) and start again"
        )
    return "questions go to Slack, by the rules of examples/support_desk/notifications.yaml"


async def serve(folder: Path) -> None:
    """Serve the desk until Ctrl-C, with two complaints to begin with."""
    tokens = folder / "tokens.json"
    token = add_token(tokens, "ada", _MAY)
    environment = {
        **os.environ,
        "ABEYANCE_TOKENS_FILE": str(tokens),
        "ABEYANCE_NOTIFICATIONS": str(_HERE / "notifications.yaml"),
    }
    plan = Plan(
        app="examples.support_desk.desk:graph",
        api_port=8000,
        temporal_port=_TEMPORAL_PORT,
        ui_port=None,
        data_dir=folder,
        in_memory=False,
        directory=_HERE.parents[1],
        environment=environment,
    )

    async def work(stack: Stack) -> None:
        async with HttpClient(stack.api_url, token) as client:
            for letter in _LETTERS:
                await client.runs.start("support_desk", {"letter": letter})
        print(f"the desk is up: {stack.inbox_url} asks for a token, which is Ada's:\n")
        print(f"  export ABEYANCE_URL={stack.api_url} ABEYANCE_TOKEN={token}")
        print("  abeyance inbox")
        print("  abeyance respond ID --approve --remember 8h --where graph    # ask no more")
        print("  abeyance grants")
        print("  abeyance approvals --sum reason.arguments.amount\n")
        print(about_slack(os.environ), flush=True)
        if all(map(os.environ.get, _TOKENS)):
            await _slack(stack, environment)
        await asyncio.get_running_loop().create_future()

    await with_stack(plan, work, announce=print)


async def _slack(stack: Stack, environment: Mapping[str, str]) -> None:
    """Run `abeyance slack` beside the stack until it ends or this is cancelled."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "abeyance", "slack"),
        env={
            **environment,
            "ABEYANCE_DATABASE_URL": stack.database_url,
            "ABEYANCE_URL": stack.api_url,
            "TEMPORAL_ADDRESS": f"127.0.0.1:{_TEMPORAL_PORT}",
        },
    )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.terminate()


def main() -> int:
    """Serve the desk, and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="abeyance-desk-") as folder:
        try:
            asyncio.run(serve(Path(folder)))
        except AbeyanceError as error:
            print_error(str(error))
            return code_of(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
