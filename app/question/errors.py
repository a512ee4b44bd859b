class QuestionRejected(Exception):
    def __init__(self) -> None:
        super().__init__("The user dismissed this question")
