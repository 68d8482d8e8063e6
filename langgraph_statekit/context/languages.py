"""Whether a text is in another language than what it was made of: by its letters, then by its commonest words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final
from unicodedata import name, normalize

_LETTERS: Final = (20, 0.1)
_COMMON_WORDS: Final = (3, 0.2)
"""So many are enough to tell; and what a text has less of than this part of what it has most of, it does not speak."""
_SAME_SCRIPT: Final = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "KATAKANA-HIRAGANA": "CJK", "BOPOMOFO": "CJK"}
_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\d_]+")
"""Chinese and Japanese have no blanks between words: there each character counts."""
_COMMONEST: Final[dict[str, str]] = {
    "Arabic": "في من على أن إلى هذا هذه التي الذي كان عن مع لا ما لم وقد",
    "Bulgarian": "да се са че е това като беше но или ще със след при от с не на и",
    "Chinese": "的 了 是 我 你 们 們 这 這 个 吗 嗎 他 她 没 沒 把 给 給 还 還",
    "Croatian": "je da se za su nije što kao ali ili bio bila koji će nego i u na",
    "Czech": "je se že jak ale pro který jsou byl byla bude také nebo když jeho podle na to v do u o si",
    "Danish": "og at er af ikke et jeg på til som blev også efter det en har med der",
    "Dutch": "het een niet van voor dat zijn wordt heeft ook maar naar bij de en is met op te aan",
    "English": "the and that this with from which they been were would about not of is was are have has will to for",
    "Finnish": "ja on ei että se oli hän mutta ovat kuin myös joka tai ole sen kanssa jos niin en",
    "French": "le les des une est et dans pour pas qui sur avec vous nous être du au cette sont été mais je un la ce",
    "German": "der die das und ist nicht ein eine mit für auf wurde sich dem den von zu im auch werden hat wird ich",
    "Hungarian": "az és hogy nem egy van volt csak ez azt már mint vagy lesz kell még meg",
    "Indonesian": "dan yang di untuk dengan tidak ini dari akan pada itu adalah atau oleh sudah juga dalam ke",
    "Italian": "il gli della che è per non una con sono di alla stato questo anche del ha nel ma si un la",
    "Japanese": "の は を に が で と た し て い る な れ す ま も ら",
    "Norwegian": "og å er av ikke et jeg på til som ble også etter det en har med der",
    "Persian": "و در به از که این را با است برای آن یک شد شده می بود",
    "Polish": "nie się jest że jak ale przez dla od który oraz są był będzie jego lub na to do w z i",
    "Portuguese": "o os uma não é com foi dos ao mais você em pelo do da um para que são na",
    "Romanian": "și în cu pe nu este din care sunt pentru mai ce fost sau lui că un la de",
    "Russian": "и в не на что с по как это для от но был его она они также или если уже до у о",
    "Serbian": "је да у су са од што као али или био која ће није се на и",
    "Slovak": "sa že ako ale pre ktorý sú bol bola bude tiež alebo keď jeho podľa na to v do nie je u si",
    "Spanish": "el los una es con fue las por del más usted pero su y se lo para que un está la",
    "Swedish": "och att är av inte ett jag på till som blev också efter det en har med för",
    "Turkish": "ve bir bu için ile olarak çok daha gibi olan sonra kadar değil ama da de",
    "Ukrainian": "і що як це для від але був його вона вони також або та щоб якщо вже не на з до у",
    "Urdu": "کے میں کی ہے اور سے کو نے کا پر یہ کہ نہیں تھا ہیں گیا",
    "Vietnamese": "và của là có không được cho các với này người một trong đã để những khi",
}
_SPEAKERS: Final[dict[str, list[str]]] = {}
for _language, _list in _COMMONEST.items():
    for _word in _list.split():
        _SPEAKERS.setdefault(_word, []).append(_language)
LANGUAGES: Final = tuple(_COMMONEST)
"""Languages that are told from others of the same script."""


def foreign(said: str, source: str, people: str = "") -> bool:
    """Tell whether a text is in a language in which its source is not, and the people in it do not speak either.

    When in doubt it is not: what the source has word for word, such as a name, a quotation or code, is no other
    language, and neither is a text with few words. Close relatives, such as Danish and Norwegian, are not told apart.

    Args:
        said: The text.
        source: What it was made of.
        people: The part of it that users and the assistant said; the rest may be in another language than theirs.
    """
    told, spoken = _words(source), _words(people)
    known = {word.lower() for word in told}
    new = [word for word in _words(said) if word.lower() not in known]
    kinds = ((_letters, _LETTERS), (_spoken, _COMMON_WORDS))
    return any(_is_new(count(new), limits, count(told), count(spoken)) for count, limits in kinds)


def _is_new(
    said: Mapping[str, float], limits: tuple[int, float], source: Mapping[str, float], people: Mapping[str, float]
) -> bool:
    """Tell whether what there is most of in a text is hardly found in the others."""
    least, hardly = limits
    main = max(said, key=said.__getitem__, default="")
    if not main or said[main] < least or max(source.values(), default=0) < least:
        return False
    return all(each.get(main, 0) <= hardly * max(each.values(), default=0) for each in (source, people))


def _words(text: str) -> list[str]:
    return _WORD.findall(normalize("NFKC", text))


def _letters(words: Iterable[str]) -> Mapping[str, float]:
    """Return how many letters of each script there are."""
    found: dict[str, float] = {}
    for char, count in Counter("".join(words)).items():
        found[_script(char)] = found.get(_script(char), 0) + count
    return found


@cache
def _script(char: str) -> str:
    """Return a letter's script: its name in Unicode begins with it."""
    first = name(char, "?").split(maxsplit=1)[0]
    return _SAME_SCRIPT.get(first, first)


def _spoken(words: Iterable[str]) -> Mapping[str, float]:
    """Return how many words are common in each language; one that is in several counts a part in each."""
    found: dict[str, float] = {}
    for word, count in Counter(words).items():
        languages = _SPEAKERS.get(word, ())
        for language in languages:
            found[language] = found.get(language, 0) + count / len(languages)
    return found
