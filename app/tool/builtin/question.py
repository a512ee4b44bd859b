from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.schema.permission import Answer, QuestionInfo, QuestionOption
from app.tool import descriptions
from app.tool.base import Tool, ToolContext, ToolResult


class Option(Wire):
    label: Annotated[str, Field(description="What the user picks, one to five words")]
    description: Annotated[str, Field(description="What picking it means")]


class Question(Wire):
    question: Annotated[str, Field(description="The whole question")]
    header: Annotated[str, Field(description="The question in very few words, as a heading")]
    options: Annotated[list[Option], Field(description="The answers to choose from")]
    multiple: Annotated[bool | None, Field(description="Whether more than one option may be picked")] = None


class QuestionParameters(Wire):
    questions: Annotated[list[Question], Field(description="What to ask, one entry a question")]


class QuestionTool(Tool[QuestionParameters]):
    id = "question"
    parameters = QuestionParameters

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: QuestionParameters, ctx: ToolContext) -> ToolResult:
        answers = await ctx.host.ask_questions([_info(question) for question in args.questions])
        count = len(args.questions)
        return ToolResult(
            title=f"Asked {count} question{'' if count == 1 else 's'}",
            output=_render(args.questions, answers),
            metadata={"answers": answers},
        )


def _info(question: Question) -> QuestionInfo:
    options = [QuestionOption(label=option.label, description=option.description) for option in question.options]
    return QuestionInfo(question=question.question, header=question.header, options=options, multiple=question.multiple)


def _render(questions: list[Question], answers: list[Answer]) -> str:
    """A client may send fewer answers than questions."""
    padded = answers + [[]] * (len(questions) - len(answers))
    pairs = (
        f'"{question.question}"="{", ".join(answer) or "Unanswered"}"'
        for question, answer in zip(questions, padded, strict=False)
    )
    return f"The user has answered: {', '.join(pairs)}. Go on with these answers in mind."
