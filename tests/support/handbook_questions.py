"""Questions over examples/handbook with the document that answers each, and words its answering passage holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HandbookQuestion:
    """One question; `documents` must all be found, `facts` are strings that stand in their text."""

    text: str
    kind: str  # lookup | calculation | comparison | unanswerable
    language: str  # en | zh
    documents: tuple[str, ...]
    facts: tuple[str, ...]


def _ask(kind: str, language: str, text: str, documents: tuple[str, ...], facts: tuple[str, ...]) -> HandbookQuestion:
    return HandbookQuestion(text=text, kind=kind, language=language, documents=documents, facts=facts)


TRAVEL = "travel-and-expenses.md"
PER_DIEM = "per-diem-rates.html"
REMOTE = "remote-access.md"
PASSWORDS = "password-policy.html"
INCIDENTS = "incident-response.md"
PROCUREMENT = "procurement-thresholds.md"
REIMBURSEMENT = "expense-reimbursement.zh.md"
EQUIPMENT = "equipment-and-leave.zh.html"

QUESTIONS: tuple[HandbookQuestion, ...] = (
    _ask("lookup", "en", "What is the mileage rate for cars?", (TRAVEL,), ("EUR 0.38 per kilometre",)),
    _ask("lookup", "en", "Within how many days must I submit my claim after a trip?", (TRAVEL,), ("within 30 days",)),
    _ask("lookup", "en", "What does the VPN code H-21 mean?", (REMOTE,), ("device certificate has expired",)),
    _ask("lookup", "en", "How long is an account locked after failed attempts?", (PASSWORDS,), ("20 minutes",)),
    _ask("lookup", "en", "When is the data protection authority told of a breach?", (INCIDENTS,), ("72 hours",)),
    _ask("lookup", "en", "Who approves a purchase of EUR 18,000?", (PROCUREMENT,), ("head of department",)),
    _ask("lookup", "zh", "业务招待餐费人均上限是多少？", (REIMBURSEMENT,), ("人均不超过 300 元",)),
    _ask("lookup", "zh", "笔记本电脑的使用年限是几年？", (EQUIPMENT,), ("使用年限为 4 年",)),
    _ask("lookup", "zh", "婚假有几天？", (EQUIPMENT,), ("婚假 10 天",)),
    _ask("calculation", "en", "What is the per diem for four days in Singapore?", (PER_DIEM,), ("EUR 224",)),
    _ask("calculation", "en", "What is paid for driving 240 km with one passenger?", (TRAVEL,), ("EUR 98.40",)),
    _ask("calculation", "zh", "去苏州出差 3 天补助多少？", (REIMBURSEMENT,), ("3 × 150 = 450 元",)),
    _ask("comparison", "en", "How do the time-outs of Harbour and Breakwater differ?", (REMOTE,), ("30 minutes",)),
    _ask("comparison", "en", "Is the hotel limit higher in London or in Zurich?", (PER_DIEM,), ("230", "240")),
    _ask("comparison", "zh", "一类城市和三类城市的住宿上限相差多少？", (REIMBURSEMENT,), ("650", "360")),
    _ask("unanswerable", "en", "What is the dress code for the summer party?", (), ()),
    _ask("unanswerable", "zh", "公司食堂几点开门？", (), ()),
)
