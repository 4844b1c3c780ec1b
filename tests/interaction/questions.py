"""Handlers that ask, written once for both eras."""

import asyncio
import secrets
import time
from typing import Annotated, Literal

from django import forms
from pydantic import BaseModel, Field

from mcp_django import Context, ToolError
from tests.interaction.checkpoints import CHECKPOINTS
from tests.interaction.handlers import prompt, resource, tool
from tests.testapp.models import Book


class Trip(BaseModel):
    """A form with rules."""

    city: str
    nights: Annotated[int, Field(ge=1, le=30)]


class Booking(forms.Form):
    """A Django form, with a rule of its own."""

    guest = forms.CharField(label="Name of the guest", max_length=20)
    nights = forms.IntegerField(min_value=1, max_value=30, initial=2)
    meals = forms.ChoiceField(label="Board", choices=[("half", "Half board"), ("full", "Full board")], initial="half")

    def clean_guest(self) -> str:
        return str(self.cleaned_data["guest"]).title()


class BookForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form of a model with a field that is unique."""

    class Meta:
        model = Book
        fields = ["title", "pages"]


class Packing(forms.Form):
    """A form that takes a choice of several."""

    items = forms.MultipleChoiceField(choices=[("t", "Toothbrush"), ("b", "Book")])


@tool()
async def ask_booking(ctx: Context) -> str:
    """Ask with a Django form."""
    stay = await ctx.elicit("For how long?", Booking, key="stay")
    return f"{stay.data['guest']} {stay.data['nights']} {stay.data['meals']}" if stay else stay.action


@tool()
def ask_booking_from_a_thread(ctx: Context) -> str:
    """Ask with a Django form from a plain function."""
    stay = ctx.sync.elicit("For how long?", Booking(initial={"guest": "Ada"}))
    return f"{stay.data['guest']} {stay.data['nights']}"


@tool()
async def ask_packing(ctx: Context) -> list[str]:
    """Ask for several choices with a Django form."""
    return (await ctx.elicit("What do you take along?", Packing)).data["items"]


@tool()
async def add_book(ctx: Context) -> str:
    """Ask with a ModelForm, save its object, and ask again."""
    answer = await ctx.elicit("Which book?", BookForm, key="book")
    if not answer:
        return "no book"
    number = await ctx.run_once("save", lambda: answer.form.save().pk)
    again = await ctx.elicit("Is it good?", bool, key="good")
    return f"{answer.data['title']} {number is not None} {again.data}"


@tool()
async def ask_name(ctx: Context) -> str:
    """Ask one question, under a key of its own."""
    answer = await ctx.elicit("What is your name?", str, key="user_name")
    return f"Hello {answer.data}" if answer else answer.action


@tool()
async def ask_twice(ctx: Context) -> str:
    """Ask two questions, one after the other."""
    CHECKPOINTS.note("ask_twice")
    first = await ctx.elicit("First?", int)
    await ctx.run_once("booking", lambda: CHECKPOINTS.note("booking"))
    second = await ctx.elicit("Second?", int)
    return f"{first.data} {second.data}"


@tool()
async def ask_more(number: int, ctx: Context) -> str:
    """Ask the same two questions, for another tool and other arguments."""
    first = await ctx.elicit("First?", int)
    second = await ctx.elicit("Second?", int)
    return f"{number} {first.data} {second.data}"


@tool()
async def ask_pair(ctx: Context) -> str:
    """Ask two questions at once."""
    first, second = await ctx.gather(ctx.elicit("A?", int, key="a"), ctx.elicit("B?", int, key="b"))
    return f"{first.data} {second.data}"


@tool()
async def ask_group(ctx: Context) -> str:
    """Ask two questions at once, from a plain TaskGroup."""
    async with asyncio.TaskGroup() as group:
        first = group.create_task(ctx.elicit("A?", int, key="a"))
        second = group.create_task(ctx.elicit("B?", int, key="b"))
    return f"{first.result().data} {second.result().data}"


@tool()
async def ask_loop(ctx: Context) -> list[str]:
    """Ask as often as the user likes."""
    stops = []
    while await ctx.elicit("Another stop?", bool):
        stops.append((await ctx.elicit("Which?", str)).data)
    return stops


@tool()
async def ask_trip(ctx: Context) -> str:
    """Ask with a form that has rules."""
    trip = await ctx.elicit("Where to?", Trip)
    return f"{trip.data.city} for {trip.data.nights}" if trip else trip.action


@tool()
async def ask_choice(ctx: Context) -> str:
    """Ask for one of three, and for some of three."""
    one = await ctx.elicit("Which one?", Literal["red", "green", "blue"])
    return f"{one.data}"


@tool()
async def ask_several(ctx: Context) -> list[str]:
    """Ask for some of three."""
    return (await ctx.elicit("Which ones?", list[Literal["red", "green", "blue"]])).data


@tool()
def ask_from_a_thread(ctx: Context) -> str:
    """Ask two questions from a plain function."""
    first = ctx.sync.elicit("First?", int)
    second = ctx.sync.elicit("Second?", int)
    return f"{first.data} {second.data}"


@tool()
def add_from_a_thread(a: int, b: int) -> int:
    """Add on a thread."""
    return a + b


@tool()
async def ask_model(ctx: Context) -> str:
    """Ask the client's model."""
    said = await ctx.sample("Say hello", max_tokens=20, system_prompt="Be brief", temperature=0.5)
    return f"{said.text} by {said.model}"


@tool()
async def ask_roots(ctx: Context) -> str:
    """Ask where the client works."""
    return " ".join(root.uri for root in await ctx.list_roots())


@tool()
async def ask_link(ctx: Context) -> str:
    """Ask the user to open a page."""
    return (await ctx.elicit_url("Please sign in", "https://example.com/sign-in", key="link")).action


@tool()
async def connect_calendar(ctx: Context) -> str:
    """Send the user to a page of the site."""
    CHECKPOINTS.note("connect_calendar")
    answer = await ctx.elicit_url("Please connect your calendar", "calendar")
    CHECKPOINTS.note("connected")
    return answer.action


@tool()
def connect_from_a_thread(ctx: Context) -> str:
    """Send the user to a page of the site from a plain function."""
    return str(ctx.sync.elicit_url("Please connect your calendar", "/calendar/?year=2030", key="page").action)


@tool()
async def pay(ctx: Context) -> str:
    """Send the user to a page elsewhere, twice."""

    def checkout(address: str) -> str:
        return f"https://pay.example/checkout?back={address}"

    first = await ctx.elicit_url("Please pay", checkout)
    second = await ctx.elicit_url("Please pay", checkout)
    return f"{first.action} {second.action}"


@tool()
async def ask_the_time(ctx: Context) -> str:
    """Ask something else on every run."""
    return str((await ctx.elicit(f"It is {time.perf_counter_ns()}. Go?", bool)).data)


@tool()
async def ask_a_pinned_time(ctx: Context) -> str:
    """Pin a value that changes, then ask."""
    now = await ctx.run_once("now", time.perf_counter_ns)
    return str((await ctx.elicit(f"It is {now}. Go?", bool)).data)


@tool()
async def ask_forever(ctx: Context) -> str:
    """Never have enough."""
    number = 0
    while True:
        number += 1
        await ctx.elicit(f"Question {number}?", bool)


@tool()
async def swallow(ctx: Context) -> str:
    """Swallow everything, the end of the round included."""
    try:
        await ctx.elicit("Sure?", bool)
    except BaseException:
        CHECKPOINTS.note("swallowed")
    return "went on"


@tool()
async def once_failing(ctx: Context) -> str:
    """Let the first attempt at something fail."""

    def charge() -> str:
        if CHECKPOINTS.note("charge") == 1:
            raise ToolError("No funds")
        return "paid"

    await ctx.elicit("Pay?", bool)
    return str(await ctx.run_once("charge", charge))


@tool()
async def once_twice(ctx: Context) -> str:
    """Use one key for two things."""
    await ctx.run_once("key", lambda: 1)
    return str(await ctx.run_once("key", lambda: 2))


@tool()
async def once_too_much(ctx: Context) -> str:
    """Remember more than a state can carry."""
    await ctx.run_once("blob", lambda: secrets.token_hex(100_000))
    return str(await ctx.elicit("Go?", bool))


@tool()
async def log_around(ctx: Context) -> str:
    """Log before and after a question."""
    await ctx.info("before")
    await ctx.elicit("Go?", bool)
    await ctx.info("after")
    return "done"


@tool()
async def progress_then_ask(ctx: Context) -> str:
    """Report progress, then ask: the round ends on a stream."""
    await ctx.report_progress(1, 2)
    return (await ctx.elicit("Go on?", bool)).action


@prompt()
async def asking_prompt(ctx: Context) -> str:
    """A prompt that asks."""
    return f"About {(await ctx.elicit('About what?', str, key='topic')).data}"


@resource("note://asking/{about}", name="asking_about")
async def asking_note_about(about: str, ctx: Context) -> str:
    """A resource template that asks."""
    return f"{about} for {(await ctx.elicit(f'{about} for whom?', str, key='whom')).data}"


@resource("note://asking", name="asking")
async def asking_note(ctx: Context) -> str:
    """A resource that asks."""
    return f"For {(await ctx.elicit('For whom?', str, key='whom')).data}"
