"""The truth server by hand: `python benchmarks/truth_server.py --help`. See tfbench/study/truth.py."""

from tfbench.study.truth import main

if __name__ == "__main__":
    main()
