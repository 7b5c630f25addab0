"""The page of the server, in a real browser, before a real server."""

from __future__ import annotations

import json
import struct
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto
from page_rig import Running, running, save_caffe, save_onnx, save_rows

from browsing import needs_browser

pytestmark = needs_browser
HOSTILE = "<img src=x onerror=alert(1)> 1"
LONG = "a-model-with-a-name-that-is-much-longer-than-anybody-would-like-it-to-be-on-a-small-screen"
TOKEN = "a-token-of-the-operator"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("models")
    for name in ("rows", HOSTILE, LONG):
        save_rows(folder, name)
    save_caffe(folder / "shares" / "1")
    sizes: list[int | str] = ["rows", 3, "height", "width"]
    save_onnx(folder / "anysize" / "1", "GlobalMaxPool", TensorProto.FLOAT, sizes, ["rows", 3, 1, 1])
    save_onnx(folder / "texts" / "1", "Identity", TensorProto.STRING, ["rows", 2])
    save_onnx(folder / "halves" / "1", "Neg", TensorProto.FLOAT16, ["rows", 3])
    (folder / "broken" / "1").mkdir(parents=True)
    (folder / "broken" / "1" / "model.onnx").write_bytes(b"no model")
    with running(folder) as started:
        yield started


@contextmanager
def opened(browser: Any, url: str, *, complaints: int = 0, **options: Any) -> Iterator[Any]:
    """The page with its first figures; what the browser complains about fails the test."""
    page = browser.new_page(**{"viewport": {"width": 1280, "height": 900}, **options})
    page.set_default_timeout(10_000)
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("dialog", lambda dialog: told.append(dialog.message))
    page.goto(url)
    yield page
    page.close()
    assert len(told) == complaints, told


@pytest.fixture
def page(browser: Any, server: Running) -> Iterator[Any]:
    with opened(browser, server.http) as shown:
        shown.wait_for_selector("#models tr")
        yield shown


def row(page: Any, model: str) -> Any:
    return page.locator("#models tr").filter(has=page.locator("td.name", has_text=model))


def figure(page: Any, model: str, label: str) -> str:
    return str(row(page, model).locator(f'td[data-label="{label}"]').inner_text())


def png(width: int, height: int, colour: tuple[int, int, int]) -> bytes:
    """One colour all over."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = (b"\0" + bytes(colour) * width) * height
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(lines)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def choose(page: Any, model: str) -> None:
    page.locator("#try-model").select_option(label=f"{model}, version 1")


def choose_image(page: Any, size: tuple[int, int], colour: tuple[int, int, int]) -> None:
    file = {"name": "image.png", "mimeType": "image/png", "buffer": png(*size, colour)}
    page.locator("#try-inputs input[type=file]").set_input_files(file)
    page.wait_for_selector("#try-inputs canvas")


def infer(page: Any) -> str:
    """What the form says of it; the outputs are behind their summaries."""
    page.locator("#try-button").click()
    page.locator("#try-button:enabled").wait_for()
    return str(page.locator("#try-state").inner_text())


def outputs(page: Any) -> list[list[Any]]:
    return [json.loads(text) for text in page.locator("#try-outputs pre").all_text_contents()]


# -- what is shown --------------------------------------------------------------------------------------------------------


def test_models_are_listed_with_their_states(page: Any) -> None:
    assert figure(page, "rows", "state") == "ready"
    assert figure(page, "rows", "inputs") == "x FP32 [-1, 4]"
    assert "INVALID_PROTOBUF" in figure(page, "broken", "state")
    assert page.locator("#state").inner_text() == "not ready: 1 of 8 models cannot be used"


def test_names_are_text_and_nothing_else(page: Any) -> None:
    assert row(page, HOSTILE).count() == 1
    choose(page, HOSTILE)
    assert infer(page).startswith("answered in")
    page.locator("#legend li").first.wait_for()
    assert page.locator("img").count() == 0


def test_figures_are_those_of_the_statistics(page: Any, server: Running) -> None:
    before = server.get("/v2/models/rows/stats")["model_stats"][0]["inference_stats"]["success"]["count"]
    for _ in range(50):
        server.infer("rows", [0.0] * 4, [1, 4])
    with pytest.raises(urllib.error.HTTPError):
        server.infer("rows", [0.0] * 5, [1, 5])
    statistics = server.get("/v2/models/rows/stats")["model_stats"][0]["inference_stats"]
    assert statistics["success"]["count"] == before + 50
    wanted = f"{before + 50:,}"
    row(page, "rows").locator("td[data-label=answered]", has_text=wanted).wait_for()
    assert figure(page, "rows", "answered") == wanted
    assert figure(page, "rows", "failed") == str(statistics["fail"]["count"])
    assert figure(page, "rows", "p99").endswith(("µs", "ms"))
    assert page.locator("#throughput polyline").count() >= 1
    assert page.locator("#latency polyline").count() >= 1


def test_rates_and_quantiles_are_computed_right(page: Any) -> None:
    bounds, before, after = [1, 2, 4, 8], [5, 0, 0, 0, 0], [5, 50, 49, 1, 0]
    quantile = "([bounds, before, after, share]) => quantile(bounds, before, after, share)"
    assert page.evaluate(quantile, [bounds, before, after, 0.5]) == pytest.approx(2.0)
    assert page.evaluate(quantile, [bounds, before, after, 0.99]) == pytest.approx(4.0)
    assert page.evaluate(quantile, [bounds, before, before, 0.5]) is None
    state = "{load: %d, requests: %d, latencies: [%d, 0]}"
    again = f"between({state % (1, 90, 90)}, {state % (2, 4, 4)}, [1]).requests"
    assert page.evaluate(again) == 4


def test_of_many_models_the_busiest_have_lines_in_colours_of_their_own(page: Any) -> None:
    drawn = page.evaluate(
        """() => {
          const models = [...Array(12).keys()].map((n) => [`m${n} 1`,
            { name: `m${n}`, version: "1", load: n, requests: n + 1, latencies: [n + 1, 0] }]);
          looks.length = 0;
          looks.push({ at: 1, models: {} }, { at: 2, models: Object.fromEntries(models) });
          showCharts({ bounds: [1] });
          const lines = [...document.querySelectorAll("#throughput polyline")];
          return [lines.map((line) => line.getAttribute("stroke")), document.getElementById("legend").innerText];
        }"""
    )
    assert len(set(drawn[0])) == 8
    assert "m11, version 1" in drawn[1]
    assert "m3, version 1" not in drawn[1]
    assert "and 4 with fewer requests" in drawn[1]


def test_charts_without_requests_say_so(browser: Any, tmp_path: Path) -> None:
    with running(tmp_path) as empty, opened(browser, empty.http) as page:
        page.wait_for_selector("#throughput text")
        assert page.locator("#models").inner_text() == "There are no models in the repository."
        assert "no requests" in page.locator("#throughput").text_content()
        assert page.locator("#try-none").inner_text() == "No model is ready."
        assert not page.locator("#try").is_visible()


def test_a_server_that_stops_is_noticed(browser: Any, tmp_path: Path) -> None:
    with running(tmp_path) as started, opened(browser, started.http, complaints=1) as page:
        page.locator("#state.good").wait_for()
        started.process.terminate()
        started.process.wait(30)
        page.locator("#state", has_text="no answer").wait_for()


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_wider_than_the_screen(browser: Any, server: Running, width: int, scheme: str) -> None:
    with opened(browser, server.http, viewport={"width": width, "height": 800}, color_scheme=scheme) as page:
        page.wait_for_selector("#models tr")
        choose(page, "shares")
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_form_is_used_with_the_keyboard_alone(page: Any) -> None:
    choose(page, "rows")
    page.locator("#try-model").focus()
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "try-button"
    page.keyboard.press("Enter")
    page.locator("#try-state", has_text="answered in").wait_for()


# -- the form -------------------------------------------------------------------------------------------------------------


def test_an_image_goes_to_a_caffe_network_as_it_is_used_to(page: Any) -> None:
    choose(page, "shares")
    assert infer(page) == "data: choose an image, or take random numbers"
    choose_image(page, (20, 10), (123, 117, 105))  # less the mean, as BGR: 1, 0, 0
    assert infer(page).startswith("answered in")
    assert outputs(page)[0] == pytest.approx([0.5761, 0.2119, 0.2119], abs=1e-3)
    assert "class 0" in page.locator("#try-outputs table").inner_text()


def test_an_image_keeps_its_size_where_the_model_takes_any(page: Any) -> None:
    choose(page, "anysize")
    choose_image(page, (20, 10), (10, 20, 30))
    assert page.locator("#try-inputs input").first.input_value() == "1, 3, 10, 20"
    assert infer(page).startswith("answered in")
    assert outputs(page)[0] == pytest.approx([10, 20, 30])


def test_numbers_by_chance_and_zeros(page: Any) -> None:
    choose(page, "shares")
    for source in ("random numbers", "zeros"):
        page.locator("#try-inputs select").first.select_option(source)
        assert infer(page).startswith("answered in")
    assert outputs(page)[0] == pytest.approx([1 / 3] * 3)


def test_strings(page: Any) -> None:
    choose(page, "texts")
    page.locator("#try-inputs textarea").fill('["a \\" b", "ä"]')
    assert infer(page).startswith("answered in")
    assert outputs(page) == [['a " b', "ä"]]


def test_what_json_cannot_write_goes_as_bytes(page: Any) -> None:
    choose(page, "halves")
    page.locator("#try-inputs textarea").fill("[0.5, -2, 0.1]")
    assert infer(page).startswith("answered in")
    assert outputs(page)[0] == pytest.approx([-0.5, 2, -0.1], abs=1e-3)


def test_several_rows(page: Any) -> None:
    choose(page, "rows")
    page.locator("#try-inputs input").fill("2, 4")
    page.locator("#try-inputs textarea").fill("[[0, 0, 0, 0], [9, 0, 0, 0]]")
    assert infer(page).startswith("answered in")
    assert outputs(page)[0][:5] == pytest.approx([0.25] * 4 + [0.9996], abs=1e-3)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ("[1, 2", "x: the values are no JSON; write a list such as [1, 2, 3]"),
        ("{}", "x: the values are no list"),
    ],
)
def test_mistakes_are_told_before_anything_is_sent(page: Any, values: str, told: str) -> None:
    choose(page, "rows")
    page.locator("#try-inputs textarea").fill(values)
    assert infer(page) == told


def test_the_server_s_complaint_is_shown(browser: Any, server: Running) -> None:
    with opened(browser, server.http, complaints=1) as page:  # the browser notes the status in its console
        page.wait_for_selector("#models tr")
        choose(page, "rows")
        page.locator("#try-inputs textarea").fill("[1, 2, 3]")
        assert "has 3 values" in infer(page)
        assert page.locator("#try-state").get_attribute("class") == "bad"
        assert page.locator("#try-outputs").inner_text() == ""


def test_the_same_request_for_a_shell(page: Any, server: Running) -> None:
    choose(page, "rows")
    infer(page)
    page.locator("#try-same summary").click()
    assert (
        page.locator("#try-curl").inner_text()
        == f"curl '{server.http}/v2/models/rows/versions/1/infer' -d @request.json"
    )
    with page.expect_download() as download:
        page.locator("#try-body").click()
    body = Path(download.value.path()).read_bytes()
    with urllib.request.urlopen(f"{server.http}/v2/models/rows/versions/1/infer", body) as answer:
        assert json.load(answer)["outputs"][0]["data"] == [0.25] * 4


# -- tokens ---------------------------------------------------------------------------------------------------------------


def test_a_token_is_asked_for_and_used(browser: Any, tmp_path: Path) -> None:
    save_rows(tmp_path / "models")
    (tmp_path / "access.yaml").write_text(f"clients: [{{name: operator, token: {TOKEN}}}]\n")
    access = ["--access", str(tmp_path / "access.yaml")]
    with running(tmp_path / "models", *access) as guarded, opened(browser, guarded.http, complaints=2) as page:
        page.wait_for_selector("#token-form:visible")
        assert page.evaluate("document.activeElement.id") == "token"
        assert page.locator("#models tr").count() == 0
        for token in ("a-token-of-nobody", TOKEN):
            page.locator("#token").fill(token)
            with page.expect_response("**/page/state"):
                page.keyboard.press("Enter")
            if token != TOKEN:
                page.wait_for_selector("#token-state:has-text('bearer token')")
        page.wait_for_selector("#models tr")
        assert not page.locator("#token-form").is_visible()
        assert infer(page).startswith("answered in")


# -- what is sent ---------------------------------------------------------------------------------------------------------


def test_files_come_with_a_policy_that_allows_nothing_inline(server: Running) -> None:
    for path in ("/", "/page/common.js", "/page/style.css"):
        with urllib.request.urlopen(f"{server.http}{path}") as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy


@pytest.fixture
def status(server: Running) -> Callable[[str], int]:
    def asked(path: str) -> int:
        try:
            with urllib.request.urlopen(f"{server.http}{path}") as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    return asked


@pytest.mark.parametrize(
    "path", ["/page/__init__.py", "/page/../page/page.js", "/page/", "/page/%2e%2e", "/index.html"]
)
def test_only_its_own_files_are_served(status: Callable[[str], int], path: str) -> None:
    assert status(path) == 404
