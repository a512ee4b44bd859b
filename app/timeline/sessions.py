"""Translates a stored session into the second API's. Pure."""

from app.schema.session import DEFAULT_VARIANT, Session, SessionModel
from app.schema.timeline import LocationRef, SessionV2Info, SessionV2Time
from app.session.revert_state import revert_state


def session_info(session: Session) -> SessionV2Info:
    time = session.time
    return SessionV2Info(
        id=session.id,
        parent_id=session.parent_id,
        project_id=session.project_id,
        agent=session.agent,
        model=_with_variant(session.model) if session.model else None,
        cost=session.cost,
        tokens=session.tokens,
        time=SessionV2Time(created=time.created, updated=time.updated, archived=time.archived),
        title=session.title,
        location=LocationRef(directory=session.directory),
        subpath=session.path or None,
        revert=revert_state(session.revert) if session.revert and not session.revert.unfinished else None,
    )


def _with_variant(model: SessionModel) -> SessionModel:
    return model.model_copy(update={"variant": model.variant or DEFAULT_VARIANT})
