"""The page in a browser: each view of a recorded history, at several widths, in both colours, with its keys and links.

The history is `fixtures/history`, in which it is known what was done to the server, and when.
"""

import contextlib
import json
import re
import shutil
import subprocess
import urllib.parse

import pytest
from test_privileges import FIXTURES

import labkit

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")

FROM, TO = "2026-11-21T21:23:00Z", "2026-11-21T21:27:30Z"
VIEWS = {
    "incident": "Incident",
    "now": "Now",
    "queries": "Queries",
    "what-changed": "What changed",
    "timeline": "Timeline",
    "waits": "Waits",
    "different": "What is different",
    "storage": "Files and disk",
    "series": "Internals",
    "events": "Events",
    "status": "Health",
}
AXE = labkit.LAB.parent / "web/node_modules/axe-core/axe.min.js"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The address of a page, and its store."""
    store = tmp_path_factory.mktemp("page") / "store"
    shutil.copytree(FIXTURES / "history", store)
    store.chmod(0o700)
    words = ["serve", "--store", store, "--listen", "127.0.0.1:0"]
    if not AXE.exists():
        pytest.skip("needs the packages of the web app: npm ci in web/")
    with subprocess.Popen([labkit.MONGOSONAR, *words], stderr=subprocess.PIPE, text=True) as child:
        try:
            said = ""
            while not (address := re.search(r"at (http://[^/]+)/", said)):
                line = child.stderr.readline()
                assert line, said
                said += line
            yield address[1], store
        finally:
            child.terminate()


@pytest.fixture(scope="module")
def browser():
    program = shutil.which("chromium")
    if not program:
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as started:
        yield started.chromium.launch(executable_path=program, args=["--no-sandbox"])


@contextlib.contextmanager
def session(browser, served, **options):
    """A tab that has a session; what goes wrong in it fails the test."""
    address, store = served
    with browser.new_context(timezone_id="UTC", **options) as context:
        tab = context.new_page()
        wrong = []
        tab.on("pageerror", lambda error: wrong.append(str(error)))
        tab.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        link = labkit.run("open", "--store", store, "--listen", address.removeprefix("http://")).stdout.strip()
        tab.goto(link.replace("/#", "/?view=status#"))
        tab.locator("nav.live").first.wait_for()
        yield tab
        assert wrong == []


def show(tab, served, view, **more):
    """Opens a view of the recorded minutes, as a link does."""
    query = urllib.parse.urlencode({"view": view, "from": FROM, "to": TO, "zone": "UTC", **more})
    tab.goto(f"{served[0]}/?{query}")
    tab.locator("h1").wait_for()
    tab.locator('[aria-busy="false"]').wait_for(state="attached")


def has_no_scroll(tab):
    return tab.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [420, 1400, 2560])
def test_each_view_fits_and_can_be_read_by_everybody(served, browser, width, colours):
    with session(browser, served, viewport={"width": width, "height": 1000}, color_scheme=colours) as tab:
        for view, title in VIEWS.items():
            show(tab, served, view)
            assert tab.locator("h1").inner_text() == title
            assert has_no_scroll(tab), view
            tab.evaluate(AXE.read_text() + "; undefined")
            found = tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
            found = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]
            assert found == [], view


def test_figures_are_those_of_the_commands(served, browser):
    words = ["--store", served[1], "--from", FROM, "--to", TO, "--json"]
    queries = labkit.document("queries", *words)
    timeline = labkit.document("timeline", *words)
    changes = json.loads(labkit.run("what-changed", *words, code=4).stdout)
    with session(browser, served) as tab:
        show(tab, served, "queries")
        assert tab.locator("table tbody").count() == len(queries["rows"])
        calls = sorted((row["calls"] for row in queries["rows"]), reverse=True)
        shown = tab.locator('td[data-name="calls"]').all_inner_texts()
        small = [count for count in calls if count < 1000]
        assert sorted((int(text) for text in shown if text.isdigit()), reverse=True) == small
        show(tab, served, "timeline")
        assert tab.locator("table tbody").count() == len(timeline["events"])
        show(tab, served, "what-changed")
        assert changes["summary"] in tab.locator("main").inner_text()


def test_a_link_shows_the_same_and_filters_are_in_it(served, browser):
    with session(browser, served) as tab:
        show(tab, served, "events")
        everything = tab.locator("table tbody").count()
        tab.get_by_label("kind").select_option("index_drop")
        tab.wait_for_url("**kind=index_drop**")
        playwright.expect(tab.locator("table tbody")).to_have_count(1)
        assert everything > 1 and "user_1" in tab.locator("table tbody").inner_text()
        link, text = tab.url, tab.locator("main").inner_text()
        tab.reload()
        playwright.expect(tab.locator("table tbody")).to_have_count(1)
        assert (tab.url, tab.locator("main").inner_text()) == (link, text)
        show(tab, served, "series", filter="cache dirty")
        titles = tab.locator("h3").all_inner_texts()
        assert titles and all("cache" in title or "dirty" in title for title in titles), titles
        show(tab, served, "queries")
        tab.locator("table tbody").first.click()
        tab.get_by_role("link", name=re.compile("^[0-9a-f]{16}$")).first.click()
        tab.wait_for_url("**view=shape**")
        tab.get_by_text("Operations per second").first.wait_for()


def test_a_view_says_what_it_lacks_and_how_to_get_it(served, browser):
    with session(browser, served) as tab:
        show(tab, served, "storage")
        said = tab.locator("main").inner_text()
        for source in ["“machine”", "“files”", "[[server]]"]:
            assert source in said
        show(tab, served, "now")
        assert "mongosonar open" in tab.locator("main").inner_text(), "a stored history has no operations that run"


def test_dragging_on_a_chart_and_keys_choose_the_time(served, browser):
    with session(browser, served) as tab:
        show(tab, served, "timeline")
        plot = tab.locator(".u-over").first.bounding_box()
        tab.mouse.move(plot["x"] + 0.25 * plot["width"], plot["y"] + 20)
        tab.mouse.down()
        tab.mouse.move(plot["x"] + 0.5 * plot["width"], plot["y"] + 20, steps=4)
        tab.mouse.up()
        tab.get_by_role("button", name=re.compile("^show only")).click()
        tab.wait_for_url(lambda url: FROM not in urllib.parse.unquote(url))
        chosen = urllib.parse.parse_qs(urllib.parse.urlparse(tab.url).query)
        assert FROM < chosen["from"][0] < chosen["to"][0] < TO
        tab.locator('[aria-busy="false"]').wait_for(state="attached")
        tab.keyboard.press("[")
        tab.wait_for_url(lambda url: "to=" + chosen["from"][0] in urllib.parse.unquote(url))
        moved = urllib.parse.parse_qs(urllib.parse.urlparse(tab.url).query)
        assert moved["to"] == chosen["from"], "earlier by its own length"


@pytest.mark.parametrize("width", [420, 1400])
def test_start_and_end_are_entered_by_keyboard_and_what_is_wrong_is_said(served, browser, width):
    with session(browser, served, viewport={"width": width, "height": 1000}) as tab:
        show(tab, served, "events")
        tab.keyboard.press("c")
        dialog = tab.get_by_role("dialog", name="Start and end")
        start, end, alert = dialog.get_by_label("from"), dialog.get_by_label("to"), dialog.get_by_role("alert")
        # A browser leaves out seconds that are 0.
        assert [start.input_value(), end.input_value()] == ["2026-11-21T21:23", "2026-11-21T21:27:30"]
        assert has_no_scroll(tab)
        for first, last, words in [
            ("2026-11-21T21:25:00", "2026-11-21T21:24:00", "The end is not later than the start."),
            ("2020-01-01T00:00:00", "2020-01-02T00:00:00", "the history begins at 2026-11-21"),
            ("", "2026-11-21T21:25:00", "Enter the day and the time of the start."),
        ]:
            start.fill(first)
            end.fill(last)
            end.press("Enter")
            playwright.expect(alert).to_contain_text(words)
        start.fill("2026-11-21T21:24:00")
        start.press("Enter")
        tab.wait_for_url(lambda url: "from=2026-11-21T21:24:00Z&to=2026-11-21T21:25:00Z" in urllib.parse.unquote(url))
        playwright.expect(dialog).to_be_hidden()


def test_all_charts_have_one_cross_hair_which_keys_move(served, browser):
    with session(browser, served) as tab:
        show(tab, served, "timeline")
        readings = tab.locator(".chart .reading")
        assert readings.count() > 2
        tab.locator(".plot").first.focus()
        for _ in range(3):
            tab.keyboard.press("ArrowRight")
        times = {text[:19] for text in readings.all_inner_texts()}
        assert len(times) == 1 and times.pop().startswith("2026-11-21 21:23:"), readings.all_inner_texts()
        # Only the chart that has the focus speaks, and only when the keys rest.
        spoken = tab.locator(".chart [role=status]")
        playwright.expect(spoken.first).to_contain_text("2026-11-21 21:23:")
        assert [text for text in spoken.all_inner_texts()[1:] if text] == []
        tab.locator(".plot").nth(1).scroll_into_view_if_needed()
        plot = tab.locator(".u-over").nth(1).bounding_box()
        tab.mouse.move(plot["x"] + 0.5 * plot["width"], plot["y"] + 20)
        playwright.expect(readings.first).to_contain_text("2026-11-21 21:25:")
        assert len({text[:19] for text in readings.all_inner_texts()}) == 1


def test_an_earlier_time_is_drawn_behind_the_charts_and_is_in_the_link(served, browser):
    half = {"from": "2026-11-21T21:25:10Z", "to": TO}
    with session(browser, served) as tab:
        for view in ("incident", "queries", "timeline", "series"):
            show(tab, served, view, **half)
            legend = tab.locator(".legend").get_by_text("the time before")
            assert legend.count() == 0, view
            tab.get_by_label("Compared with").get_by_role("link", name="the time before").click()
            tab.wait_for_url("**against=before**")
            playwright.expect(legend.first).to_be_visible()
        show(tab, served, "timeline", against="before", **half)
        tab.locator(".plot").first.focus()
        for _ in range(4):
            tab.keyboard.press("ArrowRight")
        # The change of a value in per cent, and what it was.
        said = tab.locator(".legend small").filter(has_text=re.compile("% on |as before|was "))
        playwright.expect(said.first).to_be_visible()
        show(tab, served, "timeline", against="last-week", **half)
        assert "the week before" in tab.get_by_label("Compared with").inner_text(), "nothing is stored of it"


@pytest.mark.parametrize("view", ["timeline", "series"])
def test_the_cross_hair_says_which_event_a_mark_is(served, browser, view):
    with session(browser, served) as tab:
        show(tab, served, view)
        # The index user_1 was dropped at 21:24:02, 62 of the 270 seconds after the beginning.
        tab.locator(".plot").first.scroll_into_view_if_needed()
        plot = tab.locator(".u-over").first.bounding_box()
        tab.mouse.move(plot["x"] + 62.8 / 270 * plot["width"], plot["y"] + 20)
        playwright.expect(tab.locator(".chart .reading").first).to_contain_text("index user_1 was dropped")


def test_everything_is_reached_by_keys(served, browser):
    with session(browser, served) as tab:
        show(tab, served, "events")
        tab.keyboard.press("?")
        keys = tab.get_by_role("dialog").filter(has_text="Keys")
        for key in ("[ ]", "b f", "Ctrl K", "/"):
            playwright.expect(keys.get_by_text(key, exact=True)).to_be_visible()
        tab.keyboard.press("Escape")
        tab.keyboard.press("/")
        assert tab.evaluate("document.activeElement.type") == "search"
        tab.keyboard.press("Escape")
        tab.keyboard.press("Control+k")
        tab.keyboard.type("time")
        tab.keyboard.press("Enter")
        tab.wait_for_url("**view=timeline**")
        tab.keyboard.press("b")
        tab.wait_for_url("**view=events**")
        tab.keyboard.press("f")
        tab.wait_for_url("**view=timeline**")
        # A query shape by a part of its text, which the server looks for.
        tab.keyboard.press("Control+k")
        tab.keyboard.type("carts find")
        places = tab.get_by_role("listbox", name="Places").get_by_role("option")
        playwright.expect(places.first).to_contain_text("find shop.carts")
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("ArrowUp")
        tab.keyboard.press("Enter")
        tab.wait_for_url("**view=shape**")
        tab.get_by_text("Operations per second").first.wait_for()


def test_queries_are_grouped_filtered_by_name_and_saved(served, browser):
    document = labkit.document("queries", "--store", served[1], "--from", FROM, "--to", TO, "--json")
    commands = {row["command"] for row in document["rows"]}
    calls = sum(row["calls"] for row in document["rows"] if row["command"] == "find")
    with session(browser, served) as tab:
        show(tab, served, "queries", by="command")
        assert set(tab.locator('td[data-name="command"]').all_inner_texts()) == commands
        # From a command to its shapes, by a filter that is in the link.
        tab.locator("table tbody").filter(has=tab.get_by_text("find", exact=True)).first.click()
        tab.get_by_role("link", name='command:"find"').click()
        tab.wait_for_url("**filter=command*")
        tab.locator('[aria-busy="false"]').wait_for(state="attached")
        rows = sum(row["command"] == "find" for row in document["rows"])
        playwright.expect(tab.locator("table tbody")).to_have_count(rows)
        tab.reload()
        playwright.expect(tab.locator("table tbody")).to_have_count(rows)
        with tab.expect_download() as saved:
            tab.get_by_role("button", name="CSV").click()
        heading, *lines = saved.value.path().read_text().splitlines()
        assert "calls,calls/s" in heading and "p99 (ns)" in heading and len(lines) == rows
        with tab.expect_download() as saved:
            tab.get_by_role("button", name="JSON").click()
        assert sum(row["calls"] for row in json.loads(saved.value.path().read_text())["rows"]) == calls
        tab.get_by_label("Show rows of queries that hold this").fill("command:insert")
        tab.keyboard.press("Enter")
        tab.wait_for_url("**insert*")
        tab.go_back()
        playwright.expect(tab.locator("table tbody")).to_have_count(rows)


def test_thousands_of_rows_scroll_with_those_in_sight_drawn(served, browser):
    def many(route):
        answer = route.fetch()
        document = answer.json()
        row = document["rows"][0]
        shapes = [{"shape_id": f"{n:016x}", "shape": f"{{n{n}: ?number}}" * (1 + n % 40)} for n in range(3_000)]
        document["rows"] = [row | shape for shape in shapes]
        route.fulfill(response=answer, json=document)

    with session(browser, served) as tab:
        tab.route("**/api/v1/queries?*", many)
        show(tab, served, "queries")
        rows = tab.locator("tbody[data-row]")
        playwright.expect(tab.get_by_text("3000 rows")).to_be_attached()
        # How high a row is, is known once it is drawn: the page grows while it is scrolled to its end.
        scrolled_to = """([place, number]) => {
            scrollTo(0, place * document.documentElement.scrollHeight);
            return [...document.querySelectorAll("tbody[data-row]")].some(row => {
                const box = row.getBoundingClientRect();
                const isIt = number === null || row.dataset.row === number;
                return isIt && (box.bottom > 0 && box.top < innerHeight || place === 0);
            });
        }"""
        for place, row in [(0.5, None), (1, "2999"), (0, "0")]:
            tab.wait_for_function(scrolled_to, arg=[place, row])
            assert rows.count() < 300
        # From the first row down by keys, further than what was drawn.
        rows.first.focus()
        row = "0"
        for _ in range(1_000):
            if row == "120":
                break
            tab.keyboard.press("ArrowDown")
            row = tab.evaluate("document.activeElement.dataset.row")
        assert row == "120"


def test_a_rectangle_of_a_heat_map_is_compared_with_the_rest(served, browser):
    def has(**expected):
        """Whether an address has these parameters; any value where it is None."""

        def check(url):
            given = urllib.parse.parse_qs(urllib.parse.urlparse(url).query)
            return all(name in given and value in (None, given[name][0]) for name, value in expected.items())

        return check

    with session(browser, served) as tab:
        show(tab, served, "queries")
        tab.locator("table tbody").first.click()
        tab.get_by_role("link", name=re.compile("^[0-9a-f]{16}$")).first.click()
        tab.wait_for_url(has(view="shape"))
        tab.get_by_text("Operations per second").first.wait_for()
        tab.locator(".plot").first.scroll_into_view_if_needed()
        plot = tab.locator(".u-over").first.bounding_box()
        tab.mouse.move(plot["x"] + 0.3 * plot["width"], plot["y"] + 0.1 * plot["height"])
        tab.mouse.down()
        tab.mouse.move(plot["x"] + 0.7 * plot["width"], plot["y"] + 0.9 * plot["height"], steps=4)
        tab.mouse.up()
        tab.wait_for_url(has(view="different", id=None, start=None, end=None, low=None, high=None))
        playwright.expect(tab.locator("h1")).to_have_text("What is different")
        # The same by keyboard.
        tab.get_by_label("longer than").fill("2us")
        tab.keyboard.press("Tab")
        tab.wait_for_url(has(view="different", low="2000"))
        tab.get_by_role("button", name="of all shapes").click()
        tab.wait_for_url(lambda url: not has(id=None)(url))
        tab.get_by_role("button", name="the slowest twentieth").click()
        tab.wait_for_url(lambda url: not has(low=None)(url))
        tab.get_by_text("Counted from").first.wait_for()
