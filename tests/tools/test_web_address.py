"""Which addresses a page may be read from, in every spelling that has been used to get round such a rule."""

from __future__ import annotations

import socket

import pytest

from hermes.core.errors import ToolError
from hermes.tools.web_address import AddressPolicy, AddressRefused, checked_page

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"]
REFUSED = [
    "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "100.100.100.200", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "240.0.0.1", "255.255.255.255", "168.63.129.16",
    "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_the_public_internet_is_reached(address: str) -> None:
    AddressPolicy().check(address)


@pytest.mark.parametrize("address", REFUSED)
def test_nothing_else_is(address: str) -> None:
    with pytest.raises(AddressRefused):
        AddressPolicy().check(address)


@pytest.mark.parametrize("address", ["localhost", "", "1.2.3", "127.0.0.1\n", "١٢٧.0.0.1"])
def test_what_is_no_number_is_refused(address: str) -> None:
    with pytest.raises(AddressRefused):
        AddressPolicy(["0.0.0.0/0"]).check(address)


def test_a_network_may_be_allowed_by_name_and_only_that() -> None:
    policy = AddressPolicy(["10.1.0.0/16", "fd00:1::/32"])
    policy.check("10.1.2.3")
    policy.check("::ffff:10.1.2.3")
    policy.check("fd00:1::7")
    for address in ("10.2.0.1", "127.0.0.1", "fd00:2::7"):
        with pytest.raises(AddressRefused):
            policy.check(address)
    with pytest.raises(ValueError, match="10.1"):
        AddressPolicy(["10.1"])


def test_the_address_of_the_socket_decides() -> None:
    info = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 80))
    with pytest.raises(AddressRefused):
        AddressPolicy().socket(info)
    AddressPolicy(["127.0.0.0/8"]).socket(info).close()


@pytest.mark.parametrize(
    "text",
    [
        "http://2130706433/", "http://0177.0.0.1/", "http://0x7f000001/", "http://127.1/", "http://0x7f.1/",
        "http://017700000001/", "http://127.0.0.1.:80@evil.invalid/", "http://user:pw@host.invalid/",
        "http://host.invalid@127.0.0.1/", "ftp://host.invalid/", "file:///etc/passwd", "gopher://host.invalid/",
        "javascript:alert(1)", "data:text/html,x", "//host.invalid/", "host.invalid", "", "http://", "http:///path",
        "http://a:99999/", "http://ex ample/", "http://loc%61lhost/", "http://[::1", "http://[fe80::1%25eth0]/",
        "http://a\\@127.0.0.1/", "http://host.invalid/" + "a" * 5000,
    ],
)  # fmt: skip
def test_addresses_that_are_not_even_looked_up(text: str) -> None:
    with pytest.raises(ToolError):
        checked_page(text)


def test_full_width_digits_are_the_number_they_stand_for() -> None:
    assert checked_page("http://１２７。0.0.1/x#part").host == "127.0.0.1"  # and so judged when it is connected to


def test_an_ordinary_address_keeps_all_but_its_fragment() -> None:
    assert (
        str(checked_page(" https://example.org:8443/a%20b?q=%C3%A4#top ")) == "https://example.org:8443/a%20b?q=%C3%A4"
    )
    assert checked_page("https://bücher.example/").raw_host == "xn--bcher-kva.example"
