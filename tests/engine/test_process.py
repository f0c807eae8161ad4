import os
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest

from tfbench.core.errors import EndpointError, UsageError
from tfbench.engine import EngineConfig, StepTime
from tfbench.engine.main import main, run_server
from tfbench.engine.process import start_engine

CONFIG = EngineConfig(model="tiny", step_time=StepTime(1.0, 0.0, 0.0))


def test_an_engine_in_a_child_serves_and_stops() -> None:
    with start_engine(CONFIG) as engine:
        assert engine.url.endswith("/v1")
        body = {"prompt": "a b", "max_tokens": 3}
        with httpx.Client(trust_env=False) as client:
            answer = client.post(f"{engine.url}/completions", json=body).json()
            assert answer["usage"]["completion_tokens"] == 3
            assert answer["model"] == "tiny"
            assert client.get(f"{engine.root_url}/health").status_code == 200
        engine.stop()
        assert engine.process.returncode == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{engine.root_url}/health", trust_env=False)


def test_a_client_that_leaves_is_noticed() -> None:
    with start_engine(CONFIG) as engine, httpx.Client(trust_env=False) as client:
        body = {"prompt": "a", "max_tokens": 30_000, "stream": True}
        with client.stream("POST", f"{engine.url}/completions", json=body) as response:
            assert next(response.iter_lines()).startswith("data: ")
        aborted = 'vllm:request_success_total{finished_reason="abort",engine="0",model_name="tiny"} 1.0'
        deadline = time.monotonic() + 20
        while aborted not in client.get(f"{engine.root_url}/metrics").text:
            assert time.monotonic() < deadline
            time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_cleanly_even_amid_a_stream(number: signal.Signals) -> None:
    slow = EngineConfig(model="tiny", step_time=StepTime(20.0, 0.0, 0.0))
    with start_engine(slow) as engine, httpx.Client(trust_env=False) as client:
        body = {"prompt": "a", "max_tokens": 10_000, "stream": True}
        with client.stream("POST", f"{engine.url}/completions", json=body) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("data: ")
            os.kill(engine.process.pid, number)
            with pytest.raises(httpx.TransportError):
                list(lines)
        assert engine.process.wait(20) == 0


def test_it_ends_when_its_parent_dies() -> None:
    script = (
        "import sys, time\n"
        "from tfbench.engine.process import start_engine\n"
        "with start_engine() as engine:\n"
        "    print(engine.root_url, flush=True)\n"
        "    time.sleep(600)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    with parent.stdout:
        root = parent.stdout.readline().decode().strip()
        with socket.create_connection((root.split(":")[1][2:], int(root.split(":")[2]))) as connection:
            connection.settimeout(30)
            parent.kill()
            parent.wait()
            # the engine closes the idle connection when it ends
            assert connection.recv(1) == b""


def test_a_port_that_is_taken_is_an_endpoint_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EndpointError, match=f"did not start.*127.0.0.1:{port}"), start_engine(CONFIG, port=port):
            pass


def test_ports_that_do_not_exist() -> None:
    with pytest.raises(UsageError, match="port"):
        run_server(CONFIG, port=70_000, on_ready=print)


def test_settings_that_cannot_work_are_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--config", '{"max_num_seqs": 0}']) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1 and "max_num_seqs" in printed.err
