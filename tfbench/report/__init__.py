"""What people read: the terminal summary, the self-contained HTML report and the JSON document.

`build_report` reads a study out of a warehouse once; the three forms are pure functions of what it gives.
"""

from tfbench.report.data import build_report
from tfbench.report.html import html_report, write_html
from tfbench.report.jsondoc import json_document
from tfbench.report.model import ReportData
from tfbench.report.terminal import print_summary, summary

__all__ = [
    "ReportData",
    "build_report",
    "html_report",
    "json_document",
    "print_summary",
    "summary",
    "write_html",
]
