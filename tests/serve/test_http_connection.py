"""HTTP as clients speak it, well or badly."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from http_pairs import Site, post, run

from tonnage.serve.http_messages import HttpLimits
from tonnage.serve.requests import Request


class Inference(Request):
    """Notices that nobody waits for it."""

    was_cancelled = False

    def cancel(self) -> None:
        Inference.was_cancelled = True


async def moments(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_requests_that_follow_each_other_are_answered_in_their_order() -> None:
    async def test() -> None:
        client = await Site().client()
        client.send(*(post(b"x" * number, f"/{number}") for number in range(20)))
        for number in range(20):
            assert (await client.answer())[2] == f"POST /{number} {number}".encode()
        client.close()

    run(test)


def test_an_answer_that_comes_twice_or_late_is_nobodys() -> None:
    async def test() -> None:
        site = Site(holds=True)
        client = await site.client()
        client.send(post(path="/a"), post(path="/b"))
        await moments()
        first = site.asked[0][1]
        first(200, {}, b"a")
        first(200, {}, b"a again")
        await moments()
        first(200, {}, b"a, late")
        site.asked[1][1](200, {}, b"b")
        assert [(await client.answer())[2] for _ in range(2)] == [b"a", b"b"]
        client.close()

    run(test)


@pytest.mark.parametrize(
    ("content", "status", "told"),
    [
        (post(b"x" * 101), 413, "a body of 101 bytes"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101, 413, "more than the 100 bytes"),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", 413, "the head of the request"),
        (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 3000 + b"\r\n", 413, "the head of the request"),
        (b"POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "read as HTTP"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, "read as HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400, "read as HTTP"),
        (b"x" * 5, 400, "read as HTTP"),
    ],
)
def test_what_cannot_be_read_is_told_and_ends_the_connection(content: bytes, status: int, told: str) -> None:
    async def test() -> None:
        site = Site(HttpLimits(most_body_bytes=100))
        client = await site.client()
        client.send(content)
        found, text = await client.refusal()
        assert found == status
        assert told in text
        assert await client.is_closed()
        client.close()
        await moments()
        assert not site.server.connections
        assert site.server.held_bytes == 0

    run(test)


def test_a_client_that_still_sends_can_read_why_it_was_refused() -> None:
    async def test() -> None:
        client = await Site(HttpLimits(most_body_bytes=100)).client()
        client.send(b"POST / HTTP/1.1\r\nContent-Length: 50000000\r\n\r\n")
        for _ in range(50):
            client.send(b"x" * 1_000_000)
        await client.writer.drain()
        assert (await client.refusal())[0] == 413
        client.close()

    run(test)


def test_what_is_broken_does_not_take_the_answer_before_it() -> None:
    async def test() -> None:
        site = Site(holds=True)
        client = await site.client()
        client.send(post(path="/a"), b"no http at all\r\n\r\n")
        await moments()
        site.asked[0][1](200, {}, b"a")
        status, headers, body = await client.answer()
        assert (status, headers["connection"], body) == (200, "close", b"a")
        assert await client.is_closed()
        client.close()

    run(test)


def test_a_slow_head_and_a_slow_body_are_not_waited_for() -> None:
    async def test() -> None:
        site = Site()
        for content in (b"POST /x HT", b"POST /x HTTP/1.1\r\nContent-Length: 9\r\n\r\nx"):
            client = await site.client()
            client.send(content)
            await moments()
            site.server.sweep(asyncio.get_running_loop().time() + 59)
            site.server.sweep(asyncio.get_running_loop().time() + 61)
            status, told = await client.refusal()
            assert status == 408
            assert "not complete after 61 s" in told
            client.close()
            await moments()

    run(test)


def test_a_large_body_has_more_time() -> None:
    async def test() -> None:
        site = Site(HttpLimits(slowest_bytes_second=100.0))
        client = await site.client()
        client.send(b"POST /x HTTP/1.1\r\nContent-Length: 2000\r\n\r\n", b"x" * 1000)
        await moments()
        site.server.sweep(asyncio.get_running_loop().time() + 65)
        client.send(b"x" * 1000)
        assert (await client.answer())[0] == 200
        client.close()

    run(test)


def test_the_second_of_two_requests_may_not_be_slow_either() -> None:
    async def test() -> None:
        site = Site()
        client = await site.client()
        client.send(post(), b"POST /second HT")
        assert (await client.answer())[0] == 200
        site.server.sweep(asyncio.get_running_loop().time() + 61)
        assert (await client.refusal())[0] == 408
        client.close()

    run(test)


def test_an_idle_connection_ends_and_a_busy_one_does_not() -> None:
    async def test() -> None:
        site = Site(holds=True)
        idle, busy = await site.client(), await site.client()
        busy.send(post())
        await moments()
        site.server.sweep(asyncio.get_running_loop().time() + 301)
        assert await idle.is_closed()
        site.asked[0][1](200, {}, b"done")
        assert (await busy.answer())[2] == b"done"
        idle.close()
        busy.close()

    run(test)


def test_a_client_that_does_not_read_is_not_written_to_without_end() -> None:
    async def test() -> None:
        site = Site(holds=True)
        client = await site.client()
        client.send(*(post() for _ in range(5)))
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        await moments()
        site.asked[0][1](200, {}, b"x" * 5_000_000)
        await moments()
        assert len(site.asked) == 1  # the others wait until it reads
        assert site.server.held_bytes > 1_000_000
        site.server.sweep(asyncio.get_running_loop().time() + 50)
        assert site.server.connections
        site.server.sweep(asyncio.get_running_loop().time() + 150)
        await moments()
        assert not site.server.connections
        assert site.server.held_bytes == 0
        client.close()

    run(test)


def test_what_waits_goes_on_when_a_slow_client_reads() -> None:
    async def test() -> None:
        site = Site(holds=True)
        client = await site.client()
        client.send(post(path="/a"), post(path="/b"))
        await moments()
        site.asked[0][1](200, {}, b"x" * 5_000_000)
        assert len((await client.answer())[2]) == 5_000_000
        await moments()
        site.asked[1][1](200, {}, b"b")
        assert (await client.answer())[2] == b"b"
        client.close()
        await moments()
        assert site.server.held_bytes == 0

    run(test)


def test_too_many_connections_are_refused() -> None:
    async def test() -> None:
        site = Site(HttpLimits(most_connections=1))
        first, second = await site.client(), await site.client()
        assert await second.refusal() == (503, "1 connections are open, and no more are taken")
        assert await second.is_closed()
        first.send(post())
        assert (await first.answer())[0] == 200
        first.close()
        second.close()
        await moments()
        third = await site.client()
        third.send(post())
        assert (await third.answer())[0] == 200
        third.close()

    run(test)


def test_the_bytes_of_all_connections_are_bounded() -> None:
    async def test() -> None:
        site = Site(HttpLimits(most_held_bytes=1000), holds=True)
        first, second = await site.client(), await site.client()
        first.send(post(b"x" * 900))
        await moments()
        second.send(post(b"x" * 200))
        assert (await second.refusal())[0] == 429
        second.close()
        await moments()
        assert site.server.held_bytes == 900
        site.asked[0][1](200, {}, b"done")
        await first.answer()
        assert site.server.held_bytes == 0
        first.close()

    run(test)


@pytest.mark.parametrize("half", [True, False])
def test_a_client_that_goes_takes_its_request_along(half: bool) -> None:
    async def test() -> None:
        site = Site(holds=True)
        client = await site.client()
        client.send(post(b"123"))
        await moments()
        Inference.was_cancelled = False
        site.asked[0][0].inference = Inference("m", "", [], lambda answer: None)
        if half:
            client.writer.write_eof()
        else:
            client.close()
        await moments(50)
        assert Inference.was_cancelled
        assert site.server.held_bytes == 0
        site.asked[0][1](200, {}, b"nobody reads this")
        client.close()

    run(test)


def test_a_request_that_would_change_the_protocol_is_answered_once() -> None:
    async def test() -> None:
        client = await Site().client()
        client.send(b"GET /a HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
        assert (await client.answer())[2] == b"GET /a 0"
        assert await client.is_closed()
        client.close()

    run(test)


def test_head_has_the_length_but_no_body() -> None:
    async def test() -> None:
        client = await Site().client()
        client.send(b"HEAD /a HTTP/1.1\r\n\r\n", post(path="/b"))
        status, headers, _ = await client.answer(has_body=False)
        assert (status, headers["content-length"]) == (200, "9")
        assert (await client.answer())[2] == b"POST /b 0"
        client.close()

    run(test)


@pytest.mark.parametrize(("target", "path"), [("http://here:80/a/b", "/a/b"), ("http://here", "/"), ("*", "/*")])
def test_targets_may_name_the_host(target: str, path: str) -> None:
    async def test() -> None:
        client = await Site().client()
        client.send(f"OPTIONS {target} HTTP/1.1\r\n\r\n".encode())
        assert (await client.answer())[2] == f"OPTIONS {path} 0".encode()
        client.close()

    run(test)


def test_old_clients_and_those_that_ask_for_it_are_closed() -> None:
    async def test() -> None:
        for content in (b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n"):
            client = await Site().client()
            client.send(content)
            assert (await client.answer())[1]["connection"] == "close"
            assert await client.is_closed()
            client.close()

    run(test)


def test_a_client_that_waits_to_send_its_body_is_told_to_go_on() -> None:
    async def test() -> None:
        client = await Site().client()
        client.send(b"POST /a HTTP/1.1\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"xx")
        assert (await client.answer())[2] == b"POST /a 2"
        client.close()

    run(test)


def test_draining_answers_what_has_come_and_ends_the_rest() -> None:
    async def test() -> None:
        site = Site(holds=True)
        idle, busy, half = [await site.client() for _ in range(3)]
        busy.send(post(path="/a"), post(path="/b"))
        half.send(b"POST /c HTTP/1.1\r\nContent-Length: 2\r\n\r\nx")
        await moments()
        draining = asyncio.create_task(site.server.drain())
        await moments()
        half.send(b"x")
        await moments()
        for _, reply in list(site.asked):
            reply(200, {}, b"")
        await moments()
        site.asked[-1][1](200, {}, b"")
        assert [(await busy.answer())[1].get("connection") for _ in range(2)] == [None, "close"]
        assert (await half.answer())[1]["connection"] == "close"
        assert await idle.is_closed()
        await draining
        for client in (idle, busy, half):
            client.close()

    run(test)


def test_a_request_that_failed_is_logged_with_its_id_and_without_its_token(caplog: pytest.LogCaptureFixture) -> None:
    def answered(*parts: Any) -> None:
        async def test() -> None:
            site = Site(holds=True)
            client = await site.client()
            client.send(*parts)
            await moments()
            site.asked[0][1](404, {}, b'{"error": "there is no such thing"}')
            _, headers, _ = await client.answer()
            assert headers["x-request-id"] == caplog.records[-1].request  # type: ignore[attr-defined]
            client.close()

        run(test)

    with caplog.at_level(logging.INFO, "tonnage.serve.requests"):
        answered(post(path="/a?token=secret-1", headers="X-Request-Id: mine\r\nAuthorization: Bearer secret-2\r\n"))
        answered(post(path="/b"))
    first, second = caplog.records
    assert first.__dict__["request"] == "mine"
    assert first.__dict__["path"] == "/a"
    assert first.__dict__["reason"] == "there is no such thing"
    assert first.levelno == logging.WARNING
    assert second.__dict__["request"].endswith("-1")
    assert "secret" not in "".join(str(vars(record)) for record in caplog.records)
