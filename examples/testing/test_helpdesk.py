"""The tests of the help desk. The fixtures come with the package; nothing has to be imported for them.

From what is simple to what is not: a model with a script, what was sent to it, models and networks that fail, a client
that the program makes itself, a recorded conversation, and classes of unittest.
"""

from __future__ import annotations

import threading
import unittest

import helpdesk
import pytest
from helpdesk import LATER, HelpDesk

from mantyx_sync import MantyxClient
from mantyx_sync.local import Failure, Pause, ScriptedServer, ToolUse
from mantyx_sync.local.faults import Effect, cut, lose_answer, rate_limited

LOOK_UP = ToolUse("look_up", {"order_id": "17"})
REFUND = ToolUse("refund", {"order_id": "17", "amount": 4.0})


@pytest.fixture
def desk(mantyx_client: MantyxClient) -> HelpDesk:
    return HelpDesk(mantyx_client)


@pytest.mark.mantyx(script="Good morning!")
def test_the_reply_is_what_the_model_says(desk: HelpDesk) -> None:
    assert desk.answer("Hello").text == "Good morning!"


def test_a_letter_is_answered_from_the_orders(mantyx_server: ScriptedServer, desk: HelpDesk) -> None:
    mantyx_server.script([LOOK_UP], ["Your hose is ", "on its way."], tools=["look_up", "refund"])

    assert desk.answer("Where is order 17?").text == "Your hose is on its way."

    sent = mantyx_server.sent.run
    assert sent.prompt == "Where is order 17?"
    assert sent.system_prompt == helpdesk.SYSTEM_PROMPT
    assert sent.tool_call("look_up").value == {
        "item": "garden hose",
        "status": "shipped",
        "paid": 24.0,
        "refunded": 0.0,
    }


def test_no_more_is_paid_back_than_was_paid(mantyx_server: ScriptedServer, desk: HelpDesk) -> None:
    mantyx_server.script([ToolUse("refund", {"order_id": "17", "amount": 99.0})], "I may pay back 24 euros.")

    desk.answer("I want 99 euros for order 17!")

    assert mantyx_server.sent.run.tool_call("refund").error == "only 24.00 euros can be paid back for order 17"
    assert desk.orders["17"].refunded == 0.0


@pytest.mark.mantyx(script=[["Dear ", Failure("The provider is overloaded.", error_class="overloaded")]])
def test_a_model_that_fails_leaves_the_letter_to_a_person(desk: HelpDesk) -> None:
    reply = desk.answer("Hello?")

    assert reply.needs_person
    assert reply.text == LATER


@pytest.mark.parametrize(
    ("route", "fault"),
    [("create", rate_limited(0)), ("stream", cut(after=300)), ("tool_results", lose_answer())],
    ids=["the server is busy", "the stream breaks", "an answer is lost"],
)
def test_a_refund_is_paid_once_whatever_the_network_does(
    mantyx_server: ScriptedServer, desk: HelpDesk, route: str, fault: Effect
) -> None:
    mantyx_server.script([REFUND], "You get 4 euros.")
    mantyx_server.faults.add(fault, route=route)

    assert desk.answer("The hose is too short.").text == "You get 4 euros."
    assert desk.orders["17"].refunded == 4.0


@pytest.mark.usefixtures("mantyx_no_leaks")
def test_patience_ends_and_the_run_with_it(mantyx_server: ScriptedServer, desk: HelpDesk) -> None:
    mantyx_server.script(["Let me think", Pause(threading.Event())])
    desk.patience = 0.2

    assert desk.answer("Hello?").needs_person


@pytest.mark.usefixtures("mantyx_env")
def test_the_program_makes_a_client_of_its_own(
    mantyx_server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    mantyx_server.script("It has been shipped.")

    helpdesk.main("Where is order 17?")

    assert capsys.readouterr().out == "It has been shipped.\n"


@pytest.mark.usefixtures("mantyx_replay")
def test_a_conversation_as_it_was_recorded(desk: HelpDesk) -> None:
    """Plays the file of its name in recordings/, made with `--mantyx-record` and an account.

    It fails, and says what is different, as soon as the desk asks for anything else than it did then.
    """
    assert "on its way" in desk.answer("Where is order 17, and when does it arrive?").text


class Letters(unittest.TestCase):
    """Classes of unittest keep what the fixtures give."""

    @pytest.fixture(autouse=True)
    def _mantyx(self, mantyx_server: ScriptedServer, mantyx_client: MantyxClient) -> None:
        self.server, self.desk = mantyx_server, HelpDesk(mantyx_client)

    def test_letters_are_told_apart(self) -> None:
        self.server.script("Good morning!", prompt="Hello")
        self.server.script("Goodbye.", prompt="Bye")
        assert self.desk.answer("Bye, then").text == "Goodbye."
        assert self.desk.answer("Hello there").text == "Good morning!"
        assert self.server.sent.prompts == ("Bye, then", "Hello there")
