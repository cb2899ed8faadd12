"""How a pipeline ends: the exit codes of the command line, and errors of one sentence."""

DONE, FAILED, WRONG_USAGE, NOT_FOUND, UNREACHABLE, VIOLATION = 0, 1, 2, 3, 4, 5


class PipelineError(Exception):
    """One sentence for people, and the exit code."""

    def __init__(self, sentence: str, code: int = FAILED) -> None:
        super().__init__(sentence)
        self.code = code


class UsageError(PipelineError):
    """Arguments that cannot be meant."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, WRONG_USAGE)
