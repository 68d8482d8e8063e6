"""What models and the programs before them say in place of a summary: refusals, greetings, messages of errors."""

from __future__ import annotations

import re
from typing import Final

_MOST_CHARS: Final = 400
"""A longer text says more than that, whatever it begins with."""
_BEGINS: Final = re.compile(
    r"(?:(?:sure|certainly|of course|absolutely|ok(?:ay)?|unfortunately|hello|hi)[!,.:]*\s*)?"
    r"(?:i['’]?m sorry|i am sorry|sorry,|i apologi[sz]e"
    r"|as an? (?:(?:large |ai |artificial intelligence )*language model|(?:ai|artificial intelligence)"
    r"(?: model| assistant| chatbot)?|virtual assistant)(?:,| i\b)"
    r"|i (?:can(?:['’]t|not)|could(?:n['’]t| not)) "
    r"(?:help|assist|summari[sz]e|provide|comply|fulfil|do (?:this|that)\b)"
    r"|i(?:['’]m| am) (?:unable|not able) to|unable to (?:summari[sz]e|(?:generate|provide|create) (?:a |the )?summary)"
    r"|i (?:do not|don['’]t) (?:have access to|see) "
    r"(?:the |any |an? |this |that )?(?:previous )?(?:conversation|text|transcript)"
    r"|(?:the |this |previous |your )*(?:conversation|transcript|context)(?: history)? (?:is |was )?too (?:long|large)"
    r"|(?:the )?summar(?:y|i[sz]ation) (?:is |was )?(?:unavailable|not available|failed|could not be)"
    r"|(?:there is |there['’]s )?no (?:conversation|content|text|summary)"
    r"(?: history)?(?: was| to| is| provided| available)"
    r"|(?:there is |there['’]s )?nothing (?:to summari[sz]e|was provided)"
    r"|(?:please|you (?:have|did)n['’]t) provide|error generating"
    r"|how (?:can|may) i (?:help|assist)|i(?:['’]d| would) be (?:happy|glad) to (?:help|assist|summari[sz]e)"
    r"|(?:this |the |your )?(?:content|response|request|message) (?:was |has been )?(?:blocked|filtered|flagged) "
    r"(?:by|due to) (?:the |our |an? )?(?:content|safety)"
    r"|(?:很|非常)?抱歉|对不起|作为(?:一个|一名)?\s?(?:AI|人工智能)|我(?:无法|不能)(?:总结|提供|协助|满足)"
    r"|无法(?:总结|概括|生成(?:总结|摘要))|我是(?:一个|一名)?\s?(?:AI|人工智能)[^。]{0,12}(?:无法|不能)"
    r"|(?:该|此|本|这段)?对话(?:内容|记录)?(?:太|过)长|请先?(?:提供|发送|粘贴)[^，。]{0,10}(?:对话|内容|文本|记录)"
    r"|(?:暂无|没有|无)(?:可总结的|可用的)?(?:内容|对话|总结|摘要))",
    re.IGNORECASE,
)
_WHOLE: Final = re.compile(
    r"(?:(?:sure|certainly|of course|ok(?:ay)?)[!,.:]*\s*)?(?:"
    r"here(?: is|['’]s) (?:the |a )?summary[^:\n]{0,40}|summary|n/?a|none|null|undefined"
    r"|(?:an? )?(?:unknown |unexpected |internal |server |api |rate limit )*error(?: has)?(?: occurred)?"
    r"|error(?: code)?:?\s*\d*|error(?: code)?:?\s*\d{3}\s*[-–:].{0,60}"
    r"|error:\s*(?:timed? ?out|connection|rate limit|overloaded|unknown|internal|bad gateway|service)\b.{0,40}"
    r"|rate limit(?: was)? exceeded|(?:the )?(?:request|operation|connection) timed out|time ?out|too many requests"
    r"|(?:the )?(?:service|server|model)(?: is)? (?:temporarily |currently )?(?:unavailable|overloaded)"
    r"|(?:quota|limit) exceeded|bad gateway|gateway time-?out|content (?:was )?(?:filtered|blocked)"
    r"|understood|got it|i understand|thank you|thanks|you['’]re welcome|i (?:do not|don['’]t) know"
    r"|(?:the |this )?conversation (?:has been|was) summari[sz]ed(?: successfully)?"
    r"|(?:(?:以下|下面)是[^：:\n]{0,20})?(?:总结|摘要)|好的?[，,。！!\s]*我?(?:明白|知道|了解|清楚)了"
    r")[\s.:!。：！…]*",
    re.IGNORECASE,
)


def is_canned(said: str) -> bool:
    """Tell whether an answer is one that is given whatever was asked."""
    return len(said) < _MOST_CHARS and (_BEGINS.match(said) or _WHOLE.fullmatch(said)) is not None
