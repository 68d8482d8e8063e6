"""A summary in another language is noticed, and none is called foreign for its names, its code, or a mixed conversation."""

from __future__ import annotations

import pytest

from langgraph_statekit.context.languages import LANGUAGES, foreign

SAID = {
    "Arabic": (
        "أريد أن أحجز رحلة إلى باريس مع مقعد بجانب النافذة، وهي ليست لي ولكن من أجل والدتي التي لم تسافر من قبل.",
        "العميل يريد مقعدا على رحلة إلى باريس، وقد تم إبلاغه أن هذه الرحلة لا مقاعد فيها، وما زال ينتظر الرد عن طلبه.",
    ),
    "Bulgarian": (
        "Искам да резервирам полет до Париж с място до прозореца, но това не е за мен, а за майка ми, която ще пътува.",
        "Клиентът иска да му се запази място до прозореца; това още не е направено, но той ще се обади след обяд.",
    ),
    "Chinese": (
        "我想订一张去巴黎的机票，要靠窗的座位，这不是给我自己的，是给我母亲的，她没有坐过飞机，你能帮我吗？",
        "用户要给他的母亲订去巴黎的靠窗座位；助手查了航班，还没有付款，用户说他明天再告诉我们是哪一天。",
    ),
    "Croatian": (
        "Želim rezervirati let za Pariz sa sjedalom do prozora, ali to nije za mene nego za moju majku koja će putovati.",
        "Korisnik je htio sjedalo do prozora, ali rezervacija još nije gotova jer se čeka da banka javi što je bilo.",
    ),
    "Czech": (
        "Chci si rezervovat let do Paříže s místem u okna, ale není to pro mě, je to pro mou matku, která bude cestovat.",
        "Zákazník se ptal na místo u okna, které už bylo obsazené, ale byl ujištěn, že jsou také jiné lety, když počká.",
    ),
    "Danish": (
        "Jeg vil gerne bestille et fly til Paris, og det er ikke til mig, men til min mor, som blev syg efter rejsen.",
        "Kunden ønsker et sæde ved vinduet, og det blev ikke bestilt; der er også et fly på mandag, som er billigere.",
    ),
    "Dutch": (
        "Ik wil een vlucht naar Parijs boeken met een plaats bij het raam, maar die is niet voor mij, maar voor mijn moeder.",
        "De klant wil een plaats bij het raam; die wordt nog niet geboekt, maar het is ook op maandag te doen, zegt hij.",
    ),
    "English": (
        "I would like to book a flight to Paris with a seat by the window, and it is not for me but for my mother.",
        "The user wants to book a window seat; this was not done and they have been told which flights are left.",
    ),
    "Finnish": (
        "Haluan varata lennon Pariisiin, ja paikka ei ole minulle, mutta se on äidilleni, joka on sen ansainnut myös.",
        "Asiakas haluaa paikan ikkunan vierestä, mutta se ei ole vapaa, ja hän odottaa, että lento on myös varattu.",
    ),
    "French": (
        "Je voudrais réserver un vol pour Paris avec une place près de la fenêtre, et ce n'est pas pour moi.",
        "Le client veut une place dans un avion pour Paris; les vols sont complets et il est prévenu.",
    ),
    "German": (
        "Ich möchte einen Flug nach Paris buchen, mit einem Platz am Fenster, und der ist nicht für mich.",
        "Der Kunde will einen Flug mit Fensterplatz; die Buchung ist nicht erledigt und wurde auf morgen verlegt.",
    ),
    "Hungarian": (
        "Szeretnék egy jegyet Párizsba, és nem magamnak, hanem az anyámnak, hogy ez már ne legyen gond, csak kell még egy hely.",
        "Az ügyfél egy ablak melletti helyet kér, és azt mondta, hogy ez csak akkor kell, ha még van, mint a múltkor.",
    ),
    "Indonesian": (
        "Saya ingin memesan tiket ke Paris untuk ibu saya dan bukan untuk saya, dengan kursi yang ada di dekat jendela itu.",
        "Pelanggan ingin kursi dekat jendela untuk ibunya; pesanan ini sudah dibuat tetapi tidak dibayar oleh dia dan akan batal.",
    ),
    "Italian": (
        "Vorrei prenotare un volo per Parigi con un posto alla finestra, che non è per me ma per mia madre, e anche il ritorno.",
        "Il cliente vuole un posto alla finestra che non è ancora stato prenotato; gli sono stati detti anche i voli della sera.",
    ),
    "Japanese": (
        "パリ行きの飛行機を予約したいのですが、窓側の席をお願いします。これは私ではなく母のためのものです。",
        "利用者は母のために窓側の席を希望している。予約はまだ完了しておらず、月曜日の便を待っている。",
    ),
    "Norwegian": (
        "Jeg vil gjerne bestille et fly til Paris, og det er ikke til meg, men til min mor, som ble syk etter reisen.",
        "Kunden ønsker et sete ved vinduet, og det ble ikke bestilt; det er også et fly på mandag, som er billigere.",
    ),
    "Persian": (
        "می خواهم برای مادرم یک پرواز به پاریس با صندلی کنار پنجره رزرو کنم و این بلیت را برای خودم نمی خواهم که بروم.",
        "مشتری می خواهد صندلی کنار پنجره برای مادرش رزرو شود و به او گفته شده است که این پرواز از فردا پر شده و در انتظار است.",
    ),
    "Polish": (
        "Chcę zarezerwować lot do Paryża z miejscem przy oknie, ale nie dla mnie, jest dla mojej mamy, która się boi latać.",
        "Klient prosił o miejsce przy oknie, które nie jest już wolne, ale będzie lot, który był tańszy, oraz są miejsca od jutra.",
    ),
    "Portuguese": (
        "Quero reservar um voo para Paris com um lugar à janela, que não é para mim, é para os meus pais e uma amiga.",
        "O cliente quer um lugar à janela que ainda não foi reservado; os voos são mais caros ao domingo, com uma taxa.",
    ),
    "Romanian": (
        "Vreau să rezerv un zbor pentru Paris cu un loc la geam, dar nu este pentru mine, ci pentru mama, care nu a fost acolo.",
        "Clientul vrea un loc la geam care nu este rezervat; zborurile sunt pline și a fost anunțat că mai este un loc pe luni.",
    ),
    "Russian": (
        "Я хочу заказать билет в Париж с местом у окна, но это не для меня, а для моей мамы, которая уже не летает одна.",
        "Клиент просил место у окна, но это не было сделано, как он хотел; если он позвонит, это для него уже готово.",
    ),
    "Serbian": (
        "Желим да резервишем лет за Париз, али то није за мене, већ за мајку која ће да путује, као што је и била жеља.",
        "Корисник је хтео место до прозора, али резервација није готова јер су чекали да се јави банка, као што је и био договор.",
    ),
    "Slovak": (
        "Chcem si rezervovať let do Paríža, ale nie je to pre mňa, je to pre moju mamu, ktorá sa bude tešiť, že ako sa to podarí.",
        "Zákazník sa pýtal na miesto pri okne, ktoré bolo obsadené, ale bol upozornený, že sú tiež iné lety, keď počká alebo nie.",
    ),
    "Spanish": (
        "Quiero reservar un vuelo a París con una plaza de ventana, que es para mi madre y no para los demás.",
        "El cliente quiere una plaza para París; los vuelos que pidió no están, pero es posible el lunes.",
    ),
    "Swedish": (
        "Jag vill boka ett flyg till Paris, och det är inte till mig, utan till min mor som blev sjuk efter att hon reste.",
        "Kunden vill ha ett säte vid fönstret, och det är inte bokat; det finns också ett flyg på måndag som är billigare att ta.",
    ),
    "Turkish": (
        "Paris için pencere kenarında bir uçuş ayırtmak istiyorum ama bu benim için değil, annem için ve çok önemli olan bu.",
        "Müşteri pencere kenarında bir yer istedi ama bu yer daha ayrılmış değil; pazartesi için bir uçuş ve çok ucuz olan var.",
    ),
    "Ukrainian": (
        "Я хочу замовити квиток до Парижа з місцем біля вікна, але це не для мене, а для мами, яка вже була там, якщо це можливо.",
        "Клієнт просив місце біля вікна, але це не було зроблено, як він хотів; якщо він подзвонить, то вони також скажуть, що є.",
    ),
    "Urdu": (
        "میں پیرس کے لیے کھڑکی کے پاس کی نشست چاہتا ہوں اور یہ میری والدہ کے لیے ہے، یہ سفر میں نے کبھی نہیں کیا تھا۔",
        "گاہک نے کھڑکی کی نشست کا کہا اور اسے بتایا گیا کہ پرواز میں جگہ نہیں ہے، پیر کو ایک اور پرواز ہے جس میں نشستیں ہیں۔",
    ),
    "Vietnamese": (
        "Tôi muốn đặt một vé đi Paris với chỗ ngồi cạnh cửa sổ, không phải cho tôi mà là cho mẹ của tôi, người đã không đi.",
        "Khách muốn một chỗ cạnh cửa sổ cho mẹ của mình; vé này không được đặt và các chuyến khác là của ngày mai.",
    ),
    "Korean": (
        "파리로 가는 비행기를 예약하고 싶습니다. 창가 자리로 부탁드리며 제가 아니라 어머니를 위한 것입니다.",
        "사용자는 어머니를 위해 창가 자리를 원하며 예약은 아직 완료되지 않았고 월요일 항공편을 기다리고 있습니다.",
    ),
    "Hindi": (
        "मुझे पेरिस के लिए खिड़की वाली सीट के साथ उड़ान बुक करनी है, यह मेरे लिए नहीं बल्कि मेरी माँ के लिए है।",
        "ग्राहक अपनी माँ के लिए खिड़की वाली सीट चाहता है; बुकिंग अभी पूरी नहीं हुई है और वह सोमवार की उड़ान का इंतज़ार कर रहा है।",
    ),
    "Georgian": ("მინდა დავჯავშნო ფრენა პარიზში ფანჯარასთან.", "მომხმარებელს სურს ადგილი ფანჯარასთან დედისთვის."),
}  # fmt: skip
"""For each language what a user says, and a summary."""
CLOSE = [
    {"Danish", "Norwegian", "Swedish"},
    {"Spanish", "Portuguese", "Italian"},
    {"Czech", "Slovak", "Polish", "Croatian"},
    {"Russian", "Ukrainian", "Bulgarian", "Serbian"},
]
"""Languages that share so many words that one may pass for another."""
ENGLISH = "I would like to know which flights there are, and that they have seats for the two of us from Boston. "


def test_there_is_a_sample_of_each_language() -> None:
    assert {*LANGUAGES} <= {*SAID}


@pytest.mark.parametrize("spoken", SAID)
def test_a_summary_in_another_language_is_noticed_and_one_in_the_same_is_not(spoken: str) -> None:
    source, summary = SAID[spoken]
    assert not foreign(summary, source)
    for other, (_, said) in SAID.items():
        if other != spoken and not any({spoken, other} <= each for each in CLOSE):
            assert foreign(said, source), other


@pytest.mark.parametrize("language", SAID)
def test_one_language_among_people_and_another_in_tool_results_may_both_be_taken(language: str) -> None:
    said, summary = SAID[language]
    source = f"{said}\n" + '{"status": "available", "note": "the seats are free and that is all of it"}\n' * 200
    assert not foreign(summary, source, said)
    assert not foreign(SAID["English"][1], source, said)


@pytest.mark.parametrize("language", SAID)
def test_what_stands_in_the_source_word_for_word_is_no_other_language(language: str) -> None:
    said = "\n".join(SAID[language])
    assert not foreign(f"The user quoted: {said}", ENGLISH * 20 + said)


@pytest.mark.parametrize(
    "summary",
    [
        "Mia de la Cruz, José y los Ángeles del Mar, el Paso, las Palmas, Rio de la Plata: HAT136, 305 USD, ZFA04Y.",
        "OPEN: REFUND OF HAT136. DONE: LA PAZ, LOS CABOS, EL PASO, LAS VEGAS, DES MOINES, DER SPIEGEL, DIE ZEIT.",
        "mia_li_3668; booking.update(seat='12A', paid=True) -> {'id': 'ZFA04Y', 'etat': 'ok', 'le': 1, 'la': 2, 'un': 3}",
        "Bordeaux 2019 (Château d'Yquem), tagliatelle al ragù, pão de queijo, smørrebrød, köttbullar: ordered.",
        "HAT136 305 2024-05-20 ZFA04Y",
        "Ok. 👍",
    ],
)
def test_names_code_and_telegram_style_are_no_other_language(summary: str) -> None:
    said = (
        "My name is Mia de la Cruz y García, I live at Rio de la Plata 4, and I want to go to el Paso with my mother. "
    )
    assert not foreign(summary, said + ENGLISH * 3)
    assert not foreign(summary, "")


def test_too_short_a_conversation_says_nothing_about_its_language() -> None:
    assert not foreign(SAID["English"][1], "HAT136? {'id': 1, 'le': 2}")
    assert not foreign(SAID["Chinese"][1], "Boston? OK.")
