"""Get an answer as an object of a dataclass, parsed and checked, instead of text.

python examples/structured_output.py
"""

from dataclasses import dataclass
from typing import Literal

from account import connect

from mantyx_sync import MantyxParseError

LETTER = "My order 17 has not arrived, and nobody answers the phone. This is the third time! Please call 555-0117."


@dataclass
class Ticket:
    """What the people at the desk need to know of a letter."""

    summary: str
    mood: Literal["calm", "angry"]
    order_ids: list[str]
    wants_call: bool = False


def main() -> None:
    with connect() as client:
        try:
            result = client.run_agent(
                system_prompt="You sort letters of customers. Fill in a ticket for each.",
                prompt=LETTER,
                output_type=Ticket,
            )
        except MantyxParseError as error:  # the model did not keep to the schema; its words are on the error
            print(f"no ticket: {error}\n{error.text}")
            return
        ticket: Ticket = result.output
        print(ticket)
        if ticket.wants_call:
            print("somebody should call them")


if __name__ == "__main__":
    main()
