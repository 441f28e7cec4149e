"""Everyday questions of many subjects: what a question is compared with besides an agent's own examples.

A question is off the subject when one of these is closer to it than the examples are. How far these lie apart from each
other also tells what a difference of similarities means with the embedder at hand.
"""

from __future__ import annotations

UNRELATED = (
    "What is the capital of Australia?",
    "Write a poem about the sea.",
    "How do I bake bread?",
    "Who won the football match last night?",
    "Recommend a film for tonight.",
    "What is the weather like tomorrow?",
    "Explain quantum physics to a child.",
    "How do I train a dog?",
    "Translate this sentence into Spanish.",
    "Which phone should I buy?",
    "Tell me the history of Rome.",
    "Give me tips for losing weight.",
    "Write a function that sorts a list.",
    "Who is the president of France?",
    "Plan a trip to Japan.",
    "澳大利亚的首都是哪里？",
    "写一首关于大海的诗。",
    "怎么做红烧肉？",
    "推荐一部电影。",
    "明天天气怎么样？",
    "怎样训练小狗？",
    "写一个排序函数。",
    "谁赢了昨晚的比赛？",
    "帮我规划去日本的旅行。",
    "怎样减肥？",
    "讲讲罗马的历史。",
)
