"""A server's metrics, read as Prometheus reads them: `found("turns_total", outcome="answered")`."""

from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from running_app import RunningApp

PREFIX = "opensession_"


@dataclass(frozen=True)
class Figures:
    values: dict[tuple[str, frozenset[tuple[str, str]]], float]

    def __call__(self, name: str, **labels: str) -> float:
        """0 for what was never counted, as a query of it would sum up to."""
        return self.values.get((PREFIX + name, frozenset(labels.items())), 0.0)

    def labels_of(self, name: str) -> list[dict[str, str]]:
        return [dict(labels) for found, labels in self.values if found == PREFIX + name]


def parsed(page: str) -> Figures:
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    assert samples
    return Figures({(sample.name, frozenset(sample.labels.items())): sample.value for sample in samples})


async def scrape(app: RunningApp, **options: Any) -> Figures:
    response = await app.client.get("/metrics", **options)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return parsed(response.text)
