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
    "queries": "Queries",
    "what-changed": "What changed",
    "timeline": "Timeline",
    "waits": "Waits",
    "different": "What is different",
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
