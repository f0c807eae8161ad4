"""llama.cpp's HTTP server inside this process: MODEL PORT ALIAS SLOTS CONTEXT. Started by llama_server.py."""

import signal
import sys

import xllamacpp


def main(model: str, port: int, alias: str, slots: int, context: int) -> None:
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {alias}
    params.hostnames = ["127.0.0.1"]
    params.port = port
    params.n_parallel = slots
    params.n_ctx = context
    params.n_gpu_layers = 0
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.endpoint_slots = True
    server = xllamacpp.Server(params)  # serves for as long as it is referenced
    signal.pause()
    del server


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
