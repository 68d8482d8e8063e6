"""Words so common that saying them tells no fact: English words, and the Chinese characters between words."""

from __future__ import annotations

import re
from typing import Final

COMMON: Final = frozenset(
    """
    about above across actually add after again against ago ahead ain all almost along already alright also although
    always am among amount an and another any anyone anything anyway apparently appreciate are area aren around as
    ask asked at away back bad based be became because become been before began begin behind being believe below
    best better between big bit both bring build but by call called came can cannot care case certain change check
    clear close come comes coming completely consider could couldn couple course currently day days deal definitely
    depending despite did didn different do does doesn doing don don't done down during each early easy either else
    end ended enjoy enough especially even ever every everyone everything exactly excited experience extra fact far
    feel feeling feels felt few figure finally find fine first focus following for found from full fully fun further
    gave generally get gets getting give given giving glad go goal goes going gone gonna good got great had hadn
    half happen happened happy hard has hasn have haven having he hear heard hello help helped helpful helps her
    here hey hi him his hmm hold honestly hope hoped hopefully hoping how however huge idea if important in
    including incredible incredibly instead interested interesting into is isn issue it its just keep keeping kept
    kind knew know known large last late lately later learn learned least leave left less let let's level life like
    likely likewise line list little live ll long longer look looked looking looks lot lots love loved made main
    maintain make makes making many matter may maybe me mean means meant meanwhile might mind mine moment more most
    mostly move much must my myself need needed needs never new next nice no none not nothing notice now obviously
    of off offer often oh ok okay old on once one ones only onto open opportunity or order other others otherwise
    our out over overall own part particular particularly past people perfect perhaps person piece place plan plus
    point possible possibly pretty probably process provide pull put quick quickly quite rather re ready real
    realize really reason recently regarding regardless regular related remember right run said same saw say saying
    see seem seems seen sense set several share she short should shouldn show side similar simple simply since small
    so some someone something sometimes somewhat soon sort sound sounds speaking specific specifically start started
    starting stay step still stop stuff such super sure take taken takes taking talk tell than thank thanks that the
    their them themselves then there these they thing things think thinking this those though thought through
    throughout time times to today together told too took top totally toward tried true truly try trying turn two
    type ultimately under understand unfortunately until up upon us use used useful using usually ve very via wanna
    want wanted wants was wasn way ways we week well went were weren what whatever when where whereas whether which
    while who whole why will wish with within without won wonder wondering word work worked working works world
    worth would wouldn yeah year years yep yes yet you your yourself
    谢谢 你好 您好 好的 请问 今天 现在 然后 知道 觉得
    """.split()  # noqa: SIM905
)
STOP_CHARACTERS: Final = re.compile(
    "[的了是我你您他她它们这那有在和也就都不会要吗呢啊吧很到说与及或个把被让给对从为以可能还请想用再又才么什怎样里上下去来过着得地所但而且如果因为所以没无未别]+"
)
