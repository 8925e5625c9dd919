"""How the result of an audit is printed."""

from __future__ import annotations

import json
from typing import Final

import click

from ottla.client.cli.terminal.output import print_table
from ottla.pipeline.transforms.findings import AuditFinding, AuditReport, checksum_text

_STYLES: Final = {"complete": "bold green", "INCOMPLETE": "bold red"}


def print_report(report: AuditReport, output_format: str) -> None:
    """Print a table of partitions and one of findings, or all of it as one object."""
    if output_format == "json":
        content = {
            "complete": report.is_complete,
            "partitions": [each.to_dict() for each in report.partitions],
            "findings": [each.to_dict() for each in report.findings],
        }
        click.echo(json.dumps(content))
        return
    headings = ("TOPIC", "PARTITION", "BEGIN", "END", "ROWS", "SOURCE-ROWS", "BEHIND", "CHECKSUM", "STATE")
    rows = [
        (
            each.topic,
            *map(_cell, (each.partition, each.begin, each.end, each.rows, each.source_rows, each.behind)),
            checksum_text(each.checksum),
            "INCOMPLETE" if each.findings else "complete",
        )
        for each in report.partitions
    ]
    if rows:
        print_table(headings, rows, _STYLES)
    if report.findings:
        click.echo()
        columns = ("FINDING", "TOPIC", "PARTITION", "FIRST", "LAST", "RECORDS", "FILE", "DETAIL")
        print_table(columns, [[_cell(value) for value in _cells(each)] for each in report.findings], {})


def _cells(finding: AuditFinding) -> tuple[object, ...]:
    return (
        finding.kind,
        finding.topic,
        finding.partition,
        finding.first_offset,
        finding.last_offset,
        finding.records,
        finding.file,
        finding.detail,
    )


def _cell(value: object) -> str:
    return "-" if value is None else str(value)
