"""How many words of a command line identify the command: `git status` (2), `npm run test` (3), `ls` (1)."""

from collections.abc import Sequence

_TWO_WORDS = """
bazel brew bun cargo cdk cf cmake composer consul crictl deno docker eksctl firebase flyctl git go gradle helm heroku hugo ip kind
kubectl kustomize make mc minikube mongosh mysql mvn ng npm nvm nx openssl pip pipenv pnpm poetry podman psql pulumi pyenv python
rake rbenv redis-cli rustup serverless skaffold sls sst swift systemctl terraform tmux turbo ufw vault vercel volta wp yarn
"""

_THREE_WORDS = "aws az doctl gcloud gh sfdx"

_THREE_WORDS_AFTER = {
    "bun": "run x",
    "cargo": "add run",
    "consul": "kv",
    "deno": "task",
    "docker": "builder compose container image network volume",
    "eksctl": "create",
    "git": "config remote stash",
    "ip": "addr link netns route",
    "kind": "create",
    "kubectl": "kustomize rollout",
    "mc": "admin",
    "npm": "exec init run view",
    "openssl": "req x509",
    "pnpm": "dlx exec run",
    "podman": "container image",
    "pulumi": "stack",
    "terraform": "workspace",
    "vault": "auth kv",
    "yarn": "dlx run",
}

_ARITY: dict[tuple[str, ...], int] = {
    **{(name,): 2 for name in _TWO_WORDS.split()},
    **{(name,): 3 for name in _THREE_WORDS.split()},
    **{(name, word): 3 for name, words in _THREE_WORDS_AFTER.items() for word in words.split()},
}


def arity(tokens: Sequence[str]) -> int:
    """The longest known prefix decides. An unknown command is identified by its first word."""
    return _ARITY.get(tuple(tokens[:2])) or _ARITY.get(tuple(tokens[:1])) or 1


def always_pattern(tokens: Sequence[str]) -> str | None:
    """The pattern that a reply of `always` allows, such as `git status *`, which matches `git status` too. None if the words
    contain wildcards: as a pattern they would allow more than the user saw."""
    prefix = " ".join(tokens[: arity(tokens)])
    return None if "*" in prefix or "?" in prefix else prefix + " *"
