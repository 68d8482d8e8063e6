"""What a model says in place of a summary is told from one."""

from __future__ import annotations

import asyncio

import pytest

from langgraph_statekit import (
    ContextPolicy,
    build_context,
)
from langgraph_statekit.context.asking import CONDENSE, PROMPT, SHORTEN, Job, summarize, wrong
from tests.context.rules import Recorder, conversation

POLICY = ContextPolicy(trigger=("turns", 4), slice=("turns", 2), keep=("turns", 2), attempts=2, max_failures=2)


def test_facts_that_name_a_failure_are_no_canned_answer() -> None:
    job = Job(text="The upload failed with error 500. " * 20, source=[], max_chars=200)
    for said in (
        "The upload failed with error 500.",
        "User could not log in; no refund yet.",
        "Error 500 came twice.",
        "As an airline customer, Mia wants a refund.",
        "As an AI engineer, Bo wants a faster upload.",
        "As a model, Ada flies often.",
        "Sure about the window seat, Mia wants a refund.",
        "Error: the upload stops at 500 MB, said Mia.",
        "The request was blocked by the firewall.",
        "The server is unavailable since Monday.",
        "Rate limit exceeded on each upload; Mia waits for a new key.",
        "I can't access my account since May 3.",
        "Hello Kitty shop: Mia wants a refund.",
        "无法提供发票，用户要求退款。",
        "对话框太小，用户要求修改。",
    ):
        assert wrong(said, job, job.text) == ""


@pytest.mark.parametrize(
    "said",
    [
        "As an AI language model, I cannot summarize this.",
        "As a large language model, I have no access to it.",
        "As an AI I cannot do that.",
        "Unfortunately, I cannot summarize this conversation.",
        "Sure! Here's a summary:",
        "There is nothing to summarize.",
        "Unable to summarize the conversation.",
        "I can't fulfill that request.",
        "Summary unavailable",
        "Summarization failed.",
        "Conversation too long",
        "The conversation is too long to summarize.",
        "I don't have access to the conversation.",
        "Hello! How can I assist you today?",
        "I'd be happy to help!",
        "This content was blocked by the content filter.",
        "Error: timeout",
        "Error code: 429 - rate limited",
        "Rate limit exceeded",
        "Request timed out.",
        "Too many requests",
        "The model is currently overloaded.",
        "An unexpected error has occurred.",
        "Understood.",
        "I don't know.",
        "null",
        "The conversation has been summarized.",
        "无法总结该对话。",
        "对话太长，无法总结。",
        "请提供对话内容。",
        "以下是对话的总结：",
        "好的，我明白了。",
        "我是一个AI助手，无法完成该请求。",
    ],
)
def test_what_a_model_says_in_place_of_a_summary_is_canned(said: str) -> None:
    job = Job(text="The upload failed with error 500. " * 20, source=[], max_chars=200)
    assert wrong(said, job, job.text) == "canned"


UPLOADS = "The upload failed with error 500. " * 20
REQUESTS = [prompt.format(max_chars=200, before="", text="Mia flies.") for prompt in (PROMPT, CONDENSE, SHORTEN)]


@pytest.mark.parametrize(
    "said",
    [
        "Summarize the conversation between the tags",
        "Keep names, numbers, dates and ids.",
        "without seeing it. At most 200 characters of plain text, in the language",
        '> "Summarize the conversation between the tags for the assistant: it failed.',
        *(request[:60] for request in REQUESTS),
        *(request[:180] for request in REQUESTS),
        *(request[20:150] for request in REQUESTS),
        "Reply with the summary only.\n<conversation>\n" + UPLOADS[:200],
        "<conversation>\n" + UPLOADS,
    ],
)
def test_a_part_of_what_the_summarizer_was_asked_is_an_echo(said: str) -> None:
    job = Job(text=UPLOADS * 2, source=[], max_chars=200)
    assert wrong(said, job, job.text) == "echo of the input"


@pytest.mark.parametrize("label", ["", "User: ", "[user] "])
def test_what_was_said_without_who_said_it_is_an_echo(label: str) -> None:
    history = conversation(4, calls=0)
    said = "\n".join(label + str(message.content) for message in history[:4])[:250]
    problem = build_context(history, None, POLICY, summarizer=Recorder(said)).compactions[0].problem
    assert problem == "echo of the input"


@pytest.mark.parametrize("shorter", [REQUESTS[2][:150], "...", "Please provide the text."])
def test_what_is_no_summary_is_no_shorter_one_either(shorter: str) -> None:
    job = Job(text="Mia flies to Rome on 7 May. " * 40, source=[], max_chars=200)
    said = iter(["Mia wants to fly to Rome on 7 May. " * 8, shorter])

    async def ask(prompt: str) -> str:
        return next(said)

    answer = asyncio.run(summarize(job, ask, attempts=2, max_input_tokens=10_000))
    assert "Rome" in answer.text
    assert shorter not in answer.text


SAID = {
    "English": "I would like to book a flight to Paris with a seat by the window, and it is not for me but for my mother.",
    "French": "Je voudrais réserver un vol pour Paris avec une place près de la fenêtre, et ce n'est pas pour moi.",
    "German": "Ich möchte einen Flug nach Paris buchen, mit einem Platz am Fenster, und der ist nicht für mich.",
    "Spanish": "Quiero reservar un vuelo a París con una plaza de ventana, que es para mi madre y no para los demás.",
}


@pytest.mark.parametrize("spoken", SAID)
@pytest.mark.parametrize("answered", SAID)
def test_a_summary_in_another_language_of_the_same_letters_is_none(spoken: str, answered: str) -> None:
    text = f"[user] {SAID[spoken]}\n[assistant] OK."
    said = {
        "English": "The user wants to book a window seat; this was not done and they have been told which flights are left.",
        "French": "Le client veut une place dans un avion pour Paris; les vols sont complets et il est prévenu.",
        "German": "Der Kunde will einen Flug mit Fensterplatz; die Buchung ist nicht erledigt und wurde auf morgen verlegt.",
        "Spanish": "El cliente quiere una plaza para París; los vuelos que pidió no están, pero es posible el lunes.",
    }
    problem = wrong(said[answered], Job(text=text, source=[], max_chars=300), text)
    assert problem == ("" if spoken == answered else "wrong language")


def test_a_conversation_in_two_languages_may_be_summarized_in_either() -> None:
    text = f"[user] {SAID['French']}\n[assistant] {SAID['English']}"
    for said in SAID.values():
        expected = "" if said in (SAID["French"], SAID["English"]) else "wrong language"
        assert wrong(said + " Yes.", Job(text=text, source=[], max_chars=300), text) == expected
