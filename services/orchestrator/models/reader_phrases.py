"""What the reader says, in the language of the question."""

from __future__ import annotations

from dataclasses import dataclass

from services.orchestrator.models.passages import is_cjk


@dataclass(frozen=True, slots=True, kw_only=True)
class Phrases:
    """The reader's own words. Everything else it says is quoted."""

    found: str
    nothing_fits: str
    signature: str
    introduction: str
    search_reason: str
    code_reason: str
    computed: str
    did_not_run: str
    no_code: str
    no_sandbox: str

    def not_run(self, told: str) -> str:
        """Return that the code did not run, and what the tool said of it."""
        return f"{self.did_not_run}\n\n> " + told.strip().replace("\n", "\n> ")


ENGLISH = Phrases(
    found="The documents say:",
    nothing_fits="I found nothing in the documents that answers this.",
    signature="*Quoted by the reader, which is no language model. Set OPENAI_BASE_URL to have answers written.*",
    introduction=(
        "I am the reader, no language model: I search your documents and quote the sentences that answer. Ask "
        "something they hold, or `/python CODE` to compute. Set OPENAI_BASE_URL and PROCTOR_MODEL to talk to "
        "a language model."
    ),
    search_reason="Look for passages that answer the question.",
    code_reason="The user asked for this code to be run.",
    computed="From sandbox computation:",
    did_not_run="The code gave no result:",
    no_code="Write the code behind the command, for example `/python print(6 * 7)`.",
    no_sandbox="I cannot run code here: this agent has no run_code tool. Choose an agent that has it.",
)

CHINESE = Phrases(
    found="文档中写道：",
    nothing_fits="在文档中没有找到能回答这个问题的内容。",
    signature="*以上为 reader 的原文引用；它不是语言模型。设置 OPENAI_BASE_URL 后可由语言模型作答。*",
    introduction=(
        "我是 reader，不是语言模型：我检索您的文档并引用能回答问题的句子。请提出文档中有答案的问题，"
        "或用 `/python 代码` 进行计算。"
        "设置 OPENAI_BASE_URL 和 PROCTOR_MODEL 后可与语言模型对话。"
    ),
    search_reason="查找能回答这个问题的段落。",
    code_reason="用户要求运行这段代码。",
    computed="来自沙箱计算 (from sandbox computation)：",
    did_not_run="代码没有得到结果：",
    no_code="请在命令后写上代码，例如 `/python print(6 * 7)`。",
    no_sandbox="这里无法运行代码：该智能体没有 run_code 工具，请选择带有该工具的智能体。",
)


def phrases_for(question: str) -> Phrases:
    """Return the phrases in the language of `question`."""
    return CHINESE if is_cjk(question) else ENGLISH
