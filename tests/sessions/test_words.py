"""A request to forget finds the memories that it means by their words."""

from __future__ import annotations

from langgraph_statekit.sessions.words import matching, normal


def test_a_request_to_forget_means_what_has_all_of_its_words() -> None:
    kept = ["My birthday is May 5", "my sister's birthday is June 1", "我对花生过敏", "I like tea"]
    assert matching("my birthday", kept) == [0, 1]
    assert matching("my birthday is may 5", kept) == [0]
    assert matching("my sister's birthday", kept) == [1]
    assert matching("花生", kept) == [2]
    assert matching("coffee", kept) == []
    assert matching("我的生日", ["我今天生病了，日子不好过", "我的生日是五月五日"]) == [1]
    assert matching("that I am", kept) == matching("you", ["call you"]) == []
    assert matching("tea", kept) == [3]
    assert normal(" I  like TEA. ") == normal("i like tea")
