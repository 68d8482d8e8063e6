"""Explicit requests to remember or to forget, in English and Chinese. Pure.

Only a sentence that asks for it itself counts: `Remember that I am vegetarian`, `请记住我对花生过敏`; not `I remember
...`, a question whether something is remembered, a quotation, somebody else's text behind a colon, or a reminder to do
something. What is not certain is no request. What may repeat never gives back what it took (`*+`), so that no message
takes long.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from langgraph_statekit.sessions.words import ENDS

Action = Literal["remember", "forget", "list"]


class MemoryRequest(NamedTuple):
    """What a user asks for.

    Attributes:
        action: `remember`, `forget`, or `list`: to be told what is remembered.
        text: What about, in the user's words; empty with `forget` for everything, and with `list`.
        chinese: Whether it was asked in Chinese.
    """

    action: Action
    text: str
    chinese: bool = False


_QUOTED: Final = re.compile(r"(```|~~~).*?(?:\1|\Z)|^\s*>.*$", re.DOTALL | re.MULTILINE)
_QUOTE: Final = (
    r"""\"[^"]*+"|“[^“”]*+”|「[^「」]*+」|『[^『』]*+』|«[^«»]*+»|`[^`]*+`|‘(?:[^‘’]|’(?=\w))*+’"""
    r"""|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w))*+'"""
)
# No sentence begins inside a quotation.
_SENTENCE: Final = re.compile(
    rf"(?:{_QUOTE}|[^.!?;\n。！？；])(?:{_QUOTE}|[^.!?;\n。！？；]|[.](?=\S))*+[.!?;。！？；]*"
)
_WORK: Final = "translate|summari[sz]e|rewrite|rephrase|proofread|correct|edit|explain|analy[sz]e|review"
_WORK_ZH: Final = "翻译|总结|概括|改写|润色|校对|解释|分析"
_MATERIAL: Final = re.compile(  # what follows is somebody else's text
    rf"[:：]\Z|(?:\b(?:{_WORK}|reply to|said|says|wrote|writes|reads|returned|outputs?|results?|response|article"
    rf"|e-?mail|letter|website|page|document|transcript|lyrics)\b|{_WORK_ZH}|回复|说|写|返回|输出|邮件|文章|网页|歌词)[^:：]{{0,200}}[:：]"
    rf"|\A(?:please |can you |could you )?(?:{_WORK})(?: (?:this|it|the following|below|(?:in)?to \w+))*+\W*\Z"
    rf"|\A(?:请|你|帮|我|一下|把)*+(?:{_WORK_ZH})(?:一下|以下|下面|这|段|句|话|封|内容|成\w{{1,4}})*+\W*\Z"
    r"|\A\W*(?:subject|from|to|cc|sent|date|主题|发件人|收件人|日期)\s*[:：]"
    r"|\b(?:forwarded|original) message\b|转发|原始邮件",
    re.IGNORECASE,
)
# Whose words they were is told behind them.
_SAID: Final = re.compile(
    r"[,，]\s*(?:(?:s?he|they|it|(?:my|our|his|her|the|a|an) \w+|[A-Z]\w+) (?:said|says|told|wrote|writes|whispered"
    r"|asked|replied|added|answered|shouted)\b.{0,40}|(?:他|她|他们|老师|妈妈|爸爸|老板|同事|朋友)(?:说|写|讲)(?:道|过|的)?)\W*\Z",
    re.DOTALL,
)
_ASKS: Final = (
    r"(?:(?:can|could|would|will) you|i(?:'d| would) like you to|i(?: want| need) you to|you (?:should|must|can))"
)
_POLITE: Final = (
    r"(?:(?:please|pls|plz|kindly|hey|hi|hello|ok|okay|so|also|and|but|now|then|just|always|oh|well|thanks|thank you"
    r"|btw|by the way|(?:make|be) sure (?:to|that you|you)|from now on|one more thing"
    rf"|for (?:the future|next time|later|future reference)|{_ASKS})[\s,:]+)*+"
)
_MANNER: Final = rf"(?P<polite>{_POLITE})"
_LEAD: Final = re.compile(r"\b(can|could|would|will) you\b", re.IGNORECASE)
_BEGS: Final = re.compile(r"\b(?:please|pls|plz|kindly)\b", re.IGNORECASE)
_THANKS: Final = r"(?:please|pls|plz|thanks|thank you)"
_COURTESY: Final[dict[Action, re.Pattern[str]]] = {  # `I always say please` keeps it
    "remember": re.compile(rf",\s*+{_THANKS}\W*+\Z", re.IGNORECASE),
    "forget": re.compile(rf"[\s,]{_THANKS}\W*+\Z", re.IGNORECASE),
}
_MEMORY: Final = r"(?:your |the )?(?:long[- ]term )?memory"
_YOURS: Final = r"your (?:long[- ]term )?memory"  # `Store the array in memory` means another one
_ABOUT: Final = r"(?:this|the following)(?: fact| about me)?"
_THAT_ONE: Final = (
    r"(?:time|times|day|days|night|moment|year|summer|scene|movie|film|song|show|episode|book|game|place|party|trip|guy|girl"
    r"|man|woman|person|thing|one|story|poem|quote)"
)
_VERB: Final = r"(?:is|are|was|were|has|have|had|can|does|do|will|should|must|always|never)\b"
_THAT_TOO: Final = (
    r"(?:e-?mail|message|letter|call|meeting|conversation|discussion|joke|restaurant|hotel|bar|concert|photo|picture"
    rf"|video|article|idea|feeling|dream)\b(?! {_VERB})"
)
# `Remember the milk` names something; what is to be remembered says something.
_SAYS: Final = rf"(?:\b{_VERB}|'s\b|[:=\d])"
_REMEMBER: Final = (
    r"(?:remember|memori[sz]e)(?! (?:me|us|it|that|this)\W*$)(?!\W+remember\b)"
    rf"(?:\s*[:,]\s*|\s+that(?! {_THAT_ONE}\b| {_THAT_TOO})[\s,:]+"
    rf"|\s+{_ABOUT}\s*[:,]\s*|\s+to (?=always|never)"
    r"|\s+(?!(?:to|not to|nothing|none|when|how|what|who|where|why|which|whether|if"
    r"|the (?:time|day|days|one)|last|this|that|back|correctly"
    rf"|right|anything|me|us|it|remember)\b)(?!(?:the|an?|our|their|his|her|these|those)\b(?!.*{_SAYS})))"
)
_NOTE: Final = (
    r"(?:(?:do not|don'?t(?: you)?|never) forget(?:\s+that\s+|\s*[:,]\s*|\s+(?=i\b|i'm\b|we\b)"
    rf"|\s+(?=(?:my|our)\b.*{_SAYS}))"
    r"|(?:make|take) a note(?:\s+that\s+|\s+of\s+|\s*[:,]\s*)"
    rf"|(?:save|store|keep|add|commit) (?:this |it )?(?:to|in) {_MEMORY}(?:\s+that\s+|\s*[:,]\s*)"
    rf"|(?:save|store|keep|add|put) (?!this\b|it\b)(?P<saved>.+?) (?:to|in|into) {_YOURS}\W*$"
    rf"|update {_YOURS}(?:\s+(?:that|with)\s+|\s*[:,]\s*)"
    r"|keep in mind for (?:the future|next time|later)(?:\s+that\s+|\s*[:,]\s*))"
)
_FORGET: Final = (
    r"(?:(?:forget|stop remembering|no longer remember)"
    r"(?:\s+(?:what|everything|all)(?: that)? (?:(?:i|we)(?: have|'ve)? (?:said|told you|asked you to remember)"
    r"|you (?:know|remember)) (?:about|regarding|on)\s+|\s+(?:that|about)\s+"
    r"|\s*[:,]\s*|\s+)"
    r"|(?:delete|remove|erase|clear) (?:what|everything|all)(?: that)?"
    r" (?:i(?: have|'ve)? (?:told you|asked you to remember)|you (?:know|remember)) (?:about|regarding|on)\s+"
    rf"|(?:delete|remove|erase|clear) (?P<cleared>.+?) (?:from|in) {_YOURS}\W*$"
    r"|(?:delete|remove|erase|clear|wipe) (?P<wiped>(?:all (?:of )?)?(?:my|your) memor(?:y|ies)|all (?:the )?memories"
    r"|(?:everything|all)(?: that)? you (?:know|remember))(?: (?:of|about) me)?\W*$)"
)
_EVERYTHING: Final = re.compile(
    r"(?:everything|all)(?: (?:about me|(?:that )?you (?:know|remember)(?: about me)?"
    r"|(?:that )?i(?: have|'ve)? (?:told you|asked you to remember)))?|all (?:my|your|the) memories|me",
    re.IGNORECASE,
)
_NOT_FORGOTTEN: Final = re.compile(
    r"(?:(?:(?:all (?:of )?)?(?:it|this|that|him|her|them|the rest)|me not)(?:\W.*)?|to\b.*"
    r"|i asked|i said anything|passwords?\b.*"
    r"|.*\bfor (?:now|a (?:moment|second|minute))\b.*)",
    re.IGNORECASE | re.DOTALL,
)
_POINTS: Final = re.compile(
    rf"(?:all (?:of )?)?(?:it|this|that|these|those|me|us|him|her|them|the following)|{_THANKS}", re.IGNORECASE
)
_LIST: Final = re.compile(
    rf"{_POLITE}(?:what (?:do|can) you (?:remember|(?:know|remember) about me)|what (?:have|did) you remember(?:ed)?"
    r"(?: about me)?|what (?:did i ask|have i asked) you to remember|what are (?:my|your) memories(?: of me)?"
    r"|(?:list|show(?: me)?|tell me) (?:all )?(?:(?:my|your|the) )?memories(?: (?:of|about) me)?"
    r"|(?:list|show(?: me)?|tell me) (?:everything |all )?(?:what |that )?you (?:have )?remember(?:ed)?(?: about me)?"
    r")\W*",
    re.IGNORECASE,
)
_EN: Final[list[tuple[Action, re.Pattern[str]]]] = [
    ("remember", re.compile(_MANNER + _REMEMBER + r"(?P<text>.+)", re.IGNORECASE | re.DOTALL)),
    ("remember", re.compile(_MANNER + _NOTE + r"(?P<text>.*)", re.IGNORECASE | re.DOTALL)),
    ("forget", re.compile(_MANNER + _FORGET + r"(?P<text>.*)", re.IGNORECASE | re.DOTALL)),
]
_QUESTION_EN: Final = re.compile(
    rf"{_MANNER}(?!.*\bor (?:(?:should|shall|must|do|did|will|would|can|could|have) )?(?:i|you|we|not)\b)"
    r"(?:remember\s+(?:that\b(?! (?:if|far|long|many|much)\b)|i(?:'m| am)\b|(?:my|our)\b"
    rf"(?:(?!\b(?:or|and {_VERB}|that|what|when|who|where|why|how|which|whether|if)\b)[^,])*? {_VERB})"
    r"|forget (?:my |that i\b|what i told|everything (?:about me|i told|you know)))",
    re.IGNORECASE | re.DOTALL,
)

_POLITE_ZH: Final = (
    r"(?:请你?|麻烦你?|拜托你?|劳驾|(?:希望|想让)你?|帮我|帮忙|替我|给我|你(?:要|得|必须|一定要|可以|能不能|能|可不可以)?|能不能|可不可以"
    r"|可以|能|要|一定要?|务必|以后|从现在起|今后|对了|另外|还有|顺便|好的?|那么?|嗯|永远|千万|也|再|都"
    r"|我(?:想|要|希望)(?:让)?你|[，,：:\s])*+"
)
# `我对海鲜过敏` says something, `我今天的支出` names it.
_MINE_ZH: Final = (
    r"(?=我(?!们).*(?:会(?!议)|要(?![点求])|爱(?!好)|住(?!吧?$)|过敏"
    r"|[是叫有在为不没能对喜吃最：:=\d一二三四五六七八九十]))"
)
_REMEMBER_ZH: Final = (
    rf"(?:(?:记住|牢记|记下来?|记一下|记着|记录(?:(?:下来|一下)(?=\s*[，,：:])|(?:下来|一下)?{_MINE_ZH})"
    r"|把(?:这个?|以下|下面)(?:事|内容)?记(?:住|下来?|一下)(?=\s*[，,：:])"
    r"|(?:保?存|添?加|写)(?:到|进|入)(?:你的)?记忆库?(?:里面|里|中)?(?=[了啊哦吧呀]?(?:[\s，,：:]|我|本人|咱)))"
    r"(?!了吗|了没|了什么|什么|吗)(?:(?P<done>了)|啊|哦|吧|呀)?"
    rf"|把(?P<held>(?!.*(?:{_WORK_ZH})){_MINE_ZH}我.+)(?<![并且再，,、\s])(?<!然后)(?<!一起)记(?:住|下来?)吧?$"
    r"|(?P<recalled>记得)(?=\s*[，,：:]|我(?!们?(?:说|讲|问|提)过?什么)|本人|咱)"
    r"|(?:别|不要|勿|不能|不可以)(?:忘记?了?|忘掉)(?=\s*[，,：:]|我|本人|咱))"
)
_FORGET_ZH: Final = (
    r"(?:(?:(?P<forgotten>忘记|忘掉|忘了)|不要再?记住?|别再?记住?|不用再记住?|停止记住)(?!了?吗|吧|它|算了)(?:掉)?"
    r"|(?:删除|删掉|清除|清空|抹去)(?!了|过)(?:掉|一下)?(?P<yours>[你您]的?)?(?:关于|有关|对(?=我))?"
    r"(?P<cleared>(?(yours).*?|.+?))的?记忆吧?$"
    r"|把(?P<your>[你您]的?)?(?:关于|有关|对(?=我))?(?P<dropped>(?(your).*?|.+?))的?记忆(?:都|全都?|全部)?"
    r"(?:删除|删掉|清除|清空|抹去)(?:掉)?吧?$"
    r"|把(?P<moved>.+?)(?:从(?:你的)?记忆(?:里|中))?(?:都|全都?|全部)?(?:忘掉|忘记|忘了)(?:吧)?$)"
)
_LIST_ZH: Final = re.compile(
    rf"{_POLITE_ZH}(?:你?(?:还|都)?(?:记得|记住了?)(?:关于)?我?(?:的)?(?:什么|哪些(?:事情?|东西|内容)?)"
    r"|我[让叫请]你记(?:住|得)[了过]?(?:什么|哪些(?:事情?|东西|内容)?)|(?:列出|显示|看看|查看|告诉我)(?:所有|全部)?(?:我的|你的|关于我的)?记忆)"
    r"[啊呢吗呀了]*\W*"
)
_EVERYTHING_ZH: Final = re.compile(
    r"(?:(?:你(?:知道|记得|记住)|我(?:告诉过?你|[说讲]过?))的)?(?:关于|对)?(?:我的?)?(?:所有|全部|一切)"
    r"(?:的?(?:事|事情|东西|内容|信息|记忆))?|(?:所有|全部|一切)(?:关于|对)我|(?:关于|对)?我"
)
_ZH: Final[list[tuple[Action, re.Pattern[str]]]] = [
    ("remember", re.compile(_POLITE_ZH + _REMEMBER_ZH + r"(?P<text>.*)", re.DOTALL)),
    ("forget", re.compile(_POLITE_ZH + _FORGET_ZH + r"(?P<text>.*)", re.DOTALL)),
]
_ASKED_ZH: Final = re.compile("怎么|怎样|如何|为什么|在哪|哪里|哪儿|多少|几个|是什么|有什么")
# `忘了……` and `记住了……` by themselves tell what somebody did.
_ASKING_ZH: Final = re.compile("请|麻烦|拜托|劳驾|帮|替我|给我|希望|想让|务必|要|必须|一定|能|可以|可不可以")
_BEGS_ZH: Final = re.compile("请|麻烦|拜托|劳驾|帮|替我|给我|希望|想让|务必|必须")
_OWN_ZH: Final = re.compile("(?:我|关于|有关|所有|全部|一切)(?!.*了$)")
_ERRAND_ZH: Final = re.compile(
    "(?:要|去)?(?:买|带|拿|寄|提醒|打电话|给.{1,8}(?:打|发|买|送|寄)|关(?:灯|门|窗)|交(?:钱|费|作业))"
)
_UNSAID_ZH: Final = re.compile("(?:告诉|说(?!过|的)|提(?!到的)|讲(?!过|的)|问|带|拿|买|关|锁|交)")
_NAMED_ZH: Final = re.compile(  # says nothing of what it names
    "(?:[我你他她它]们?|咱们?|我的?一切|[这那](?:个|些|点|一点|几点|件事|句话|一刻|一天)?"
    "|我们?.{0,4}(?:说|讲|问)(?:的|过的?).{0,2}|(?:[我他她]们?|咱们?)的[^是叫有在为不没要会能对喜爱住用过最：:=\\d一二三四五六七八九十]*)"
    "[吗吧啊呢]?"
)
_NOT_FORGOTTEN_ZH: Final = re.compile("(?:我的)?(?:密码|口令)")
_SIMPLE: Final = str.maketrans(
    "會愛點為帶買電記請別對刪關於說寫譯總結潤麻煩幫給從還後遠務嗎們這沒個東內訊顯訴憶講問過麼讓釋復幾裡郵網頁詞題發輸裏並庫",
    "会爱点为带买电记请别对删关于说写译总结润麻烦帮给从还后远务吗们这没个东内讯显诉忆讲问过么让释复几里邮网页词题发输里并库",
)
"""Traditional characters of the patterns: what is returned keeps its own."""
_CHINESE: Final = re.compile(r"[\u3400-\u9fff]")
_REST: Final = re.compile(
    rf"{_POLITE}remember\s+{_ABOUT}\s*:"
    rf"|{_POLITE_ZH}(?:记住|记下来?|记一下)(?:以下|下面|这些?)(?:内容|事|几点|信息)?\s*[：:]",
    re.IGNORECASE,
)
_BARE: Final = re.compile(
    rf"(?:{_POLITE}(?:remember|don'?t forget)(?: this)?|{_POLITE_ZH}{_REMEMBER_ZH})\s*[:：]\s*", re.IGNORECASE
)


def find_requests(text: str) -> list[MemoryRequest]:
    """Return what a message asks to remember, forget or list, in its order; code and quoted text do not count."""
    text = _QUOTED.sub("\n", text)
    found: list[MemoryRequest] = []
    sentences = list(_SENTENCE.finditer(text))
    at = 0
    while at < len(sentences):
        sentence = sentences[at][0].strip()
        at += 1
        if _REST.match(sentence.translate(_SIMPLE)):  # all that follows is meant
            sentence, at = text[sentences[at - 1].start() :].strip(), len(sentences)
        elif _BARE.fullmatch(sentence.translate(_SIMPLE)) and at < len(
            sentences
        ):  # what it is about comes on the next line
            sentence += sentences[at][0]
            at += 1
        request = _request(sentence)
        if request is None and _MATERIAL.search(sentence.translate(_SIMPLE)):
            break
        if request is not None and request not in found:
            found.append(request)
    return found


def _request(sentence: str) -> MemoryRequest | None:
    chinese = bool(_CHINESE.search(sentence))
    if _SAID.search(sentence):
        return None
    if (_LIST_ZH if chinese else _LIST).fullmatch(sentence.translate(_SIMPLE)):
        return MemoryRequest("list", "", chinese)
    return (_chinese(sentence) if chinese else None) or _english(sentence, chinese)


def _english(sentence: str, chinese: bool) -> MemoryRequest | None:
    asked = _QUESTION_EN.match(sentence)
    marked = sentence.rstrip(" \t\r\n!.！。").endswith(("?", "？"))
    if marked and (asked is None or not re.search(_ASKS, asked["polite"], re.IGNORECASE)):
        return None
    for action, pattern in _EN:
        match = pattern.fullmatch(_COURTESY[action].sub("", sentence))
        if match is None:
            continue
        groups = match.groupdict()
        lead = _LEAD.search(match["polite"])
        asks = marked or lead is not None
        about = (groups.get("saved") or groups.get("cleared") or groups["text"]).strip(ENDS)
        if action == "forget":
            worries = asks and not _BEGS.search(match["polite"] + sentence[match.end() :])
            if groups.get("wiped") or _EVERYTHING.fullmatch(about):
                return None if worries else MemoryRequest("forget", "", chinese)
            able = lead is not None and lead[1].lower() in ("can", "could")
            if not about or _NOT_FORGOTTEN.fullmatch(about) or (worries and not able):
                return None
            return MemoryRequest("forget", about, chinese)
        names = asks and asked is None and re.fullmatch(r"(?:my|our)\b[^:=\d]*", about, re.IGNORECASE)
        if len(about) < 2 or _POINTS.fullmatch(about) or names:
            return None
        return MemoryRequest("remember", about, chinese)
    return None


def _chinese(sentence: str) -> MemoryRequest | None:
    written = sentence.strip(ENDS)
    body = written.translate(_SIMPLE)
    asks = sentence.translate(_SIMPLE).rstrip().endswith(("?", "？")) or body.endswith(("吗", "没有"))
    polite = re.match(_POLITE_ZH, body)
    if (asks and not (polite and re.search("[能可]", polite[0]))) or _ASKED_ZH.search(body):
        return None
    for action, pattern in _ZH:
        match = pattern.fullmatch(body)
        if match is None:
            continue
        group = next(
            name
            for name in ("cleared", "dropped", "moved", "held", "text")
            if name in match.groupdict() and match[name] is not None
        )
        about = written[slice(*match.span(group))].strip(ENDS)
        manner = polite[0] if polite else ""
        if _is_told(match, manner, about.translate(_SIMPLE)):
            return None
        about = (
            re.sub(r"[吗吧哦啊]$", "", about) if action == "remember" else re.sub(r"(?:这件事|吧|了|吗)$", "", about)
        )
        everything = _EVERYTHING_ZH.fullmatch(about.translate(_SIMPLE)) or (group != "text" and not about)
        if action == "forget" and everything:
            worries = re.search("[能可]", manner) and not _BEGS_ZH.search(manner)
            return None if worries else MemoryRequest("forget", "", True)
        if action == "forget" and _NOT_FORGOTTEN_ZH.fullmatch(about):
            return None
        return MemoryRequest(action, about, True) if about else None
    return None


def _is_told(match: re.Match[str], polite: str, about: str) -> bool:
    """Say whether what looks like a request in Chinese tells or names something, or reminds of an errand."""
    groups = match.groupdict()
    asks = bool(_ASKING_ZH.search(polite))
    if "forgotten" not in groups:
        errand = _ERRAND_ZH.match(about) or _NAMED_ZH.fullmatch(about)
        recalled = groups["recalled"] and match.string[match.end("recalled") :].lstrip()[:1] not in "：:"
        return bool(errand or (not asks and (groups["done"] or recalled)))
    if match.string.endswith("吧") and re.search("你|一定", polite) and not _BEGS_ZH.search(polite):
        return True  # `你忘了我的生日吧` reproaches
    asks = bool(_ASKING_ZH.search(polite.replace("一定", "")))  # `你一定忘了` supposes
    if asks or not groups["forgotten"]:  # `把钥匙忘了`
        return not asks and groups["moved"] is not None and match.string.endswith(("忘了", "忘记了"))
    if about.endswith("吧") and len(about) > 2 and _OWN_ZH.match(about):
        return False
    return (
        groups["forgotten"] == "忘了"
        or "你" in polite
        or bool(_UNSAID_ZH.match(about))
        or not (groups["forgotten"] == "忘掉" or _OWN_ZH.match(about))
    )
