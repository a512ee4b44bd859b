"""Prompts of the second API: each is admitted to a session once, however often it is sent, and begun unless it says otherwise."""

import mimetypes
from urllib.parse import unquote

from app.record.repositories import journal_rows
from app.schema.errors import BadRequest, Conflict
from app.schema.message import PromptInput, UserMessage
from app.schema.part import AgentPartInput, FilePartInput, FileSource, PartInput, SourceText, TextPartInput
from app.schema.session import DEFAULT_VARIANT
from app.schema.timeline import (
    PromptAgentAttachment,
    PromptFile,
    PromptFileAttachment,
    PromptSource,
    PromptV2,
    SentPrompt,
    SessionInputAdmitted,
    SessionPromptInput,
)
from app.server import Server
from app.sessions.rows import PromptedSession, model_of_session
from app.sessions.timeline.service import stored_prompts
from app.turn.intake.prompts import AcceptedPrompt
from app.util import ids
from app.workspace.attached_file import split_url
from app.workspace.instance import Instance


async def admit(app: Server, instance: Instance, session_id: str, wanted: SessionPromptInput) -> SessionInputAdmitted:
    """Stores a prompt and starts its turn, or queues it. Raises what `Prompts.accept` raises, and Conflict for an id that is
    used for something else."""
    prompted = await app.store.session_to_prompt(session_id)
    message_id = wanted.id or ids.ascending("message")
    newest_before = await app.store.query(journal_rows.newest_seq)
    try:
        prompt = await _prompt_input(app, instance, prompted, message_id, wanted)
        await _accept(app, instance, prompted, prompt, wanted)
    except BadRequest as wrong:
        raise _in_words_of_this_api(wrong) from None
    admission = await app.timeline.admission(session_id, message_id, newest_before)
    return SessionInputAdmitted(
        admitted_seq=admission.admitted_seq,
        id=message_id,
        session_id=session_id,
        prompt=_prompt_v2(wanted.prompt),
        delivery=admission.delivery,
        time_created=admission.time,
        promoted_seq=admission.promoted_seq,
    )


async def _accept(
    app: Server, instance: Instance, prompted: PromptedSession, prompt: PromptInput, wanted: SessionPromptInput
) -> None:
    session_id = prompted.session.id
    if wanted.delivery == "queue" and (wanted.resume or app.live.get(session_id).is_unfinished):
        accepted = await app.queue.accept(instance, prompted, prompt.model_copy(update={"when_busy": "queue"}))
    else:
        joining = prompt.model_copy(update={"no_reply": None if wanted.resume else True})
        accepted = await app.prompts.accept(instance, prompted, joining)
    if isinstance(accepted, AcceptedPrompt) and accepted.run is not None:
        app.prompts.answer_later(session_id, accepted)


async def _prompt_input(
    app: Server, instance: Instance, prompted: PromptedSession, message_id: str, wanted: SessionPromptInput
) -> PromptInput:
    """The prompt as the first API has it, with the session's agent and model. A prompt that was sent before keeps those that
    it got then."""
    session = prompted.session
    stored = [message.info for message in await app.store.query(stored_prompts, session.id, message_id)]
    known = next((info for info in stored if isinstance(info, UserMessage)), None)
    parts = prompt_parts(wanted.prompt)
    if known is not None:
        await _require_same_delivery(app, session.id, message_id, wanted)
        return PromptInput(message_id=message_id, agent=known.agent, model=known.model, variant=known.variant, parts=parts)
    agent = instance.agent(session.agent)
    model = model_of_session(session) or agent.model or prompted.last_model or instance.default_model()
    variant = session.model.variant if session.model and session.model.variant != DEFAULT_VARIANT else None
    return PromptInput(message_id=message_id, agent=agent.name, model=model, variant=variant, parts=parts)


async def _require_same_delivery(app: Server, session_id: str, message_id: str, wanted: SessionPromptInput) -> None:
    """Raises Conflict for what was queued and is sent again to steer; an idle session queues nothing."""
    if wanted.delivery == "steer" and (await app.timeline.admission(session_id, message_id, 0)).delivery == "queue":
        raise Conflict(f"Message {message_id} was sent with delivery queue. Use a new id for a new message.")


def _in_words_of_this_api(wrong: BadRequest) -> BadRequest:
    """An error of the first API's `parts` as one of `files`: text and agents cannot be wrong."""
    [issue] = wrong.issues
    return BadRequest(wrong.message, ["prompt", "files"], wrong.received) if issue["path"][:1] == ["parts"] else wrong


def prompt_parts(prompt: SentPrompt) -> list[PartInput]:
    files = [_file_part(file) for file in prompt.files or ()]
    agents = [AgentPartInput(name=agent.name, source=_source_text(agent.source)) for agent in prompt.agents or ()]
    return [TextPartInput(text=prompt.text), *files, *agents]


def _file_part(file: PromptFile) -> FilePartInput:
    source = _source_text(file.source)
    return FilePartInput(
        mime=mime_of(file),
        filename=file.name,
        description=file.description,
        url=file.uri,
        source=FileSource(text=source, path=file.name or unquote(split_url(file.uri).path)) if source else None,
    )


def mime_of(file: PromptFile) -> str:
    """The type that a data URI names, or that the name's ending implies."""
    if file.mime:
        return file.mime
    if file.uri.startswith("data:"):
        return file.uri[len("data:") :].partition(",")[0].partition(";")[0] or "text/plain"
    guessed = mimetypes.guess_type(unquote(split_url(file.uri).path))[0] or ""
    return guessed if guessed.startswith(_NOT_TEXT) else "text/plain"


_NOT_TEXT = ("image/", "audio/", "video/", "application/pdf")
"""Files of all other types are read as text."""


def _source_text(source: PromptSource | None) -> SourceText | None:
    return SourceText(value=source.text, start=source.start, end=source.end) if source else None


def _prompt_v2(sent: SentPrompt) -> PromptV2:
    files = [PromptFileAttachment(**{**file.model_dump(), "mime": mime_of(file)}) for file in sent.files or ()]
    agents: list[PromptAgentAttachment] = sent.agents or []
    return PromptV2(text=sent.text, files=files or None, agents=agents or None)
