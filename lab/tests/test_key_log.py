"""Encrypted connections with a key log: what is decrypted from packets, against what clients sent."""

import shutil
import ssl
import subprocess

import pytest
import test_tls
import tlskit

import labkit

pytestmark = pytest.mark.root


def logging_context(keys):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.keylog_filename = str(keys)
    return context


@pytest.mark.parametrize("version", test_tls.BOTH)
@pytest.mark.parametrize("endpoint", ["membio", "stunnel"])
def test_a_growing_key_log_decrypts_a_live_capture(endpoint, version, served_v4, tmp_path):
    keys = tmp_path / "keys.log"
    keys.touch()
    with tlskit.ENDPOINTS[endpoint](tmp_path, served_v4, version) as address:
        with tlskit.capture(tmp_path, address, "--tls-keylog", str(keys)) as sonar:
            context = logging_context(keys)
            with tlskit.RawClient(address, "raw", context=context) as first:
                test_tls.small_commands(first)
                session = first.socket.session
            with tlskit.RawClient(address, "raw", context=context, session=session) as second:
                assert second.socket.session_reused
                documents = [{"_id": n, "pad": "x" * 50_000} for n in range(20)]
                second.ask({"drop": "of_key_log", "$db": "lab_raw"})
                second.ask({"insert": "of_key_log", "documents": documents, "$db": "lab_raw"})
                second.ask({"drop": "of_key_log", "$db": "lab_raw"})
            lines = tlskit.settled(sonar, first.sent + second.sent)
        assert "process" not in sonar.err.read_text(), "it attaches to none"
    test_tls.check_raw(lines, [first, second])
    assert all(op["tls_version"] == f"TLSv{version}" for op in labkit.operations(lines))
    coverage = labkit.summary(lines)["coverage"]
    assert (coverage["streams_tls_decrypted"], coverage["streams_tls_no_key"], coverage["gaps"]) == (2, 0, 0)


def test_a_client_that_writes_no_key_log_is_counted(served_v4, tmp_path):
    keys = tmp_path / "keys.log"
    keys.touch()
    with tlskit.membio(tmp_path, served_v4, "1.3") as address:
        with tlskit.capture(tmp_path, address, "--tls-keylog", str(keys)) as sonar:
            test_tls.small_commands_of_new_client(address)
            with tlskit.RawClient(address, "raw", context=logging_context(keys)) as client:
                test_tls.small_commands(client)
            lines = tlskit.settled(sonar, client.sent)
    test_tls.check_raw(lines, [client])
    coverage = labkit.summary(lines)["coverage"]
    assert (coverage["streams_tls_decrypted"], coverage["streams_tls_no_key"]) == (1, 1)


def test_a_capture_with_secrets_that_editcap_injected_is_read_without_a_key_log(served_v4, tmp_path):
    if not shutil.which("editcap"):
        pytest.skip("editcap is not installed")
    keys, kept, injected = (tmp_path / name for name in ("keys.log", "kept.pcapng", "injected.pcapng"))
    keys.touch()
    with tlskit.membio(tmp_path, served_v4, "1.3") as address:
        with tlskit.capture(tmp_path, address, "--tls-keylog", str(keys), "--write", str(kept)) as sonar:
            with tlskit.RawClient(address, "raw", context=logging_context(keys)) as client:
                test_tls.small_commands(client)
            tlskit.settled(sonar, client.sent)
    subprocess.run(["editcap", "--inject-secrets", f"tls,{keys}", kept, injected], check=True)
    for more in ([], ["--tls-keylog", str(keys)]):
        file = kept if more else injected
        lines = labkit.read_capture(file, *more)
        test_tls.check_raw(lines, [client])
