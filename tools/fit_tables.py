#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Derives data/matmul.csv and the measured rows of data/collectives.csv.

usage: fit_tables.py MEASUREMENTS OUT_DIR [--check]

MEASUREMENTS holds aiconfigurator/<system>_gemm_vllm.parquet and <system>_nccl_perf.parquet (ai-dynamo
aiconfigurator 095f58a, Apache-2.0) and nccl_allreduce/trace_allreduce_lut/v100/ (VIA-Research vTrain
f8dda84). Needs numpy, scipy, pandas and pyarrow. --check prints the errors and writes nothing.
How the numbers are used: docs/internals/cost-tables.md.
"""
import csv
import glob
import os
import sys

import numpy as np
import pandas as pd
from scipy import sparse
from scipy.sparse.linalg import spsolve

# curve, file stem, peak dense BF16 FLOP/s, memory bytes/s, NVLink bytes/s per direction of the system measured
SYSTEMS = [
    ("A100", "a100_sxm", 312e12, 2.039e12, 300e9),
    ("H100", "h100_sxm", 989e12, 3.35e12, 450e9),
    ("H200", "h200_sxm", 989e12, 4.8e12, 450e9),
    ("B200", "b200_sxm", 2250e12, 8.0e12, 900e9),
    ("GB200", "gb200", 2500e12, 8.0e12, 900e9),
    ("L40S", "l40s", 362e12, 0.864e12, 32e9),
]
M_AXIS = [2**i for i in range(4, 14)]  # 16 .. 8192
N_AXIS = [2**i for i in range(6, 17)]  # 64 .. 65536
K_AXIS = [2**i for i in range(6, 17)]
MEMORY_FRAC = 0.9  # of the memory bandwidth that a matmul's operands reach
STEPS = [2**i for i in range(10, 30)]  # collective sizes, bytes: 1 KiB .. 512 MiB


def weights(axis, values):
    """Lower node and fraction for linear interpolation in log2; below the axis: its edge."""
    x = np.log2(np.asarray(values, float)) - np.log2(axis[0])
    x = np.clip(x, 0, None)
    low = np.minimum(x.astype(int), len(axis) - 2)
    frac = np.clip(x - low, 0, 1)
    over = np.clip(x - (len(axis) - 1), 0, None)
    return low, frac, over


def design(m, n, k):
    shape = (len(M_AXIS), len(N_AXIS), len(K_AXIS))
    parts = [weights(a, v) for a, v in ((M_AXIS, m), (N_AXIS, n), (K_AXIS, k))]
    rows, cols, vals = [], [], []
    for corner in range(8):
        w = np.ones(len(m))
        index = []
        for axis in range(3):
            low, frac, _ = parts[axis]
            up = corner >> axis & 1
            w *= frac if up else 1 - frac
            index.append(low + up)
        rows.append(np.arange(len(m)))
        cols.append(np.ravel_multi_index(index, shape))
        vals.append(w)
    a = sparse.csr_matrix((np.concatenate(vals), (np.concatenate(rows), np.concatenate(cols))),
                          shape=(len(m), int(np.prod(shape))))
    over = sum(p[2] for p in parts) * np.log(2)
    return a, over


def monotone(g):
    """Nearest simple monotone grid: middle of the upper and the lower envelope, then the upper one."""
    up, down = g.copy(), g.copy()
    for axis in range(3):
        up = np.maximum.accumulate(up, axis=axis)
        down = np.flip(np.minimum.accumulate(np.flip(down, axis), axis=axis), axis)
    g = (up + down) / 2
    for axis in range(3):
        g = np.maximum.accumulate(g, axis=axis)
    return g


def predict(grid, t0, peak, bw, m, n, k):
    a, over = design(m, n, k)
    c = np.exp(a @ grid.ravel() + over) / peak
    mem = 2 * (m * k + k * n + m * n) / (bw * MEMORY_FRAC)
    return t0 + (c**3 + mem**3) ** (1 / 3)


def fit_matmul(d, peak, bw, sweep_seed=None):
    m, n, k = (d[x].to_numpy(float) for x in "mnk")
    t = d.latency.to_numpy(float) * 1e-3
    t0 = np.quantile(t, 0.01)  # the launch of the smallest kernels
    t0 = min(t0, 0.98 * t.min())
    a, over = design(m, n, k)
    mem = 2 * (m * k + k * n + m * n) / (bw * MEMORY_FRAC)
    w = np.where((m >= 256) & (n >= 256) & (k >= 256), 1.0, 0.3)
    mm, nn, kk = np.meshgrid(np.log2(M_AXIS), np.log2(N_AXIS), np.log2(K_AXIS), indexing="ij")
    base = (mm + nn + kk + 1) * np.log(2)  # log of flop at each node
    x = (base + np.log(1 / 0.6)).ravel()  # log(flop / e)
    shape = mm.shape
    ident = np.arange(x.size).reshape(shape)
    rows = []
    for axis in range(3):  # second differences
        i = np.moveaxis(ident, axis, 0)
        for lo, mid, hi in zip(i[:-2], i[1:-1], i[2:]):
            for p, q, r in zip(lo.ravel(), mid.ravel(), hi.ravel()):
                rows.append((p, q, r))
    rows = np.array(rows)
    s = sparse.csr_matrix((np.tile([1.0, -2.0, 1.0], len(rows)), (np.repeat(np.arange(len(rows)), 3), rows.ravel())),
                          shape=(len(rows), x.size))
    best = min(0.99, float(np.max(2 * m * n * k / peak / t)))  # no node beats the best measurement
    floor = base.ravel() - np.log(best)
    for _ in range(12):
        c = np.exp(a @ x + over) / peak
        body = (c**3 + mem**3) ** (1 / 3)
        pred = t0 + body
        share = body / pred * c**3 / (c**3 + mem**3)
        j = sparse.diags(share) @ a
        res = np.log(t) - np.log(pred)
        huber = 1 / np.maximum(1, np.abs(res) / 0.15)
        ww = sparse.diags(w * huber)
        lam = 0.15
        lhs = j.T @ ww @ j + lam * (s.T @ s) + 1e-6 * sparse.identity(x.size)
        rhs = j.T @ ww @ res - lam * (s.T @ (s @ x))
        x = np.maximum(x + spsolve(lhs.tocsc(), rhs), floor)
    g = np.maximum(monotone(x.reshape(shape)), base - np.log(best))
    for axis in range(3):
        g = np.maximum.accumulate(g, axis=axis)
    return g, base, t0


def errors(pred, t):
    e = np.abs(pred / t - 1)
    return 100 * np.median(e), 100 * np.quantile(e, 0.9)


def matmul(folder, out, check):
    from scipy.optimize import least_squares
    lines = []
    for curve, stem, peak, bw, _ in SYSTEMS:
        path = os.path.join(folder, "aiconfigurator", stem + "_gemm_vllm.parquet")
        d = pd.read_parquet(path)
        d = d[(d.gemm_dtype == "bfloat16") & (d.m >= 16) & (d.n >= 64) & (d.k >= 64)]
        d = d.sort_values(["m", "n", "k"]).reset_index(drop=True)
        g, base, t0 = fit_matmul(d, peak, bw)
        m, n, k = (d[x].to_numpy(float) for x in "mnk")
        t = d.latency.to_numpy(float) * 1e-3
        pred = predict(g, t0, peak, bw, m, n, k)
        big = (m >= 256) & (n >= 256) & (k >= 256)

        def plain(p):
            return p[2] * 1e-6 + ((2 * m * n * k / (peak * p[0])) ** 3 +
                                  (2 * (m * k + k * n + m * n) / (bw * p[1])) ** 3) ** (1 / 3)
        p = least_squares(lambda q: (np.log(plain(q)) - np.log(t))[big], [0.8, 0.7, 3], loss="soft_l1",
                          f_scale=0.1, bounds=([0.1, 0.1, 0.1], [1, 3, 30])).x
        rng = np.random.default_rng(1)
        held = rng.random(len(d)) < 0.2
        gh, _, t0h = fit_matmul(d[~held].reset_index(drop=True), peak, bw)
        ph = predict(gh, t0h, peak, bw, m, n, k)
        print("%-6s points %6d t0 %.2f us  table %.1f / %.1f %%  held-out fifth %.1f / %.1f %%  plain formula %.1f / %.1f %%"
              "  all shapes >= 16x64x64: table %.1f / %.1f %%  best efficiency %.3f"
              % ((curve, int(big.sum()), t0 * 1e6) + errors(pred[big], t[big]) + errors(ph[big & held], t[big & held]) +
                 errors(plain(p)[big], t[big]) + errors(pred, t) + (np.exp(base - g).max(),)))
        e = np.exp(base - g)
        lines.append((curve, t0, e))
    if check:
        return
    with open(os.path.join(out, "matmul.csv"), "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        f.write("# Share of the dense BF16 peak that the compute part of a matmul [m,k] x [k,n] reaches; in log2 of each side\n"
                "# linear between nodes. Written by tools/fit_tables.py from ai-dynamo/aiconfigurator@095f58a GEMM measurements.\n")
        w.writerow(["curve", "m", "n"] + ["k%d" % x for x in K_AXIS])
        for curve, _, e in lines:
            for i, m in enumerate(M_AXIS):
                for j, n in enumerate(N_AXIS):
                    w.writerow([curve, m, n] + ["%.3g" % x for x in e[i, j]])
    for curve, t0, _ in lines:
        print("start_s of %s: %.3g" % (curve, t0))


OPS = [("all_reduce", "all_reduce"), ("all_gather", "all_gather"), ("reduce_scatter", "reduce_scatter"), ("all_to_all", "alltoall")]


def resample(sizes, t):
    t = np.maximum.accumulate(t)
    y = np.interp(np.log2(STEPS), np.log2(sizes), np.log(t))
    return np.exp(y)


def collectives(folder, out, check):
    rows = []
    for curve, stem, _, _, link in SYSTEMS:
        if curve == "L40S":
            continue  # a box without a peer-to-peer path: rows of collective_links.csv, no curve
        d = pd.read_parquet(os.path.join(folder, "aiconfigurator", stem + "_nccl_perf.parquet"))
        d = d[d.nccl_dtype == "half"]  # message_size counts elements: 2 bytes each
        for op, name in OPS:
            for n in sorted(d.num_gpus.unique()):
                x = d[(d.op_name == name) & (d.num_gpus == n)].groupby("message_size").latency.median()
                y = resample(2.0 * x.index.to_numpy(), x.to_numpy() * 1e3)
                rows.append((curve, link, op, int(n), y))
    for n in range(2, 9):
        path, = glob.glob(os.path.join(folder, "nccl_allreduce/trace_allreduce_lut/v100/AR_GPU%d_*" % n))
        x = pd.read_csv(path)
        sizes, t = x.iloc[:, 0].to_numpy(float), x.iloc[:, 3].to_numpy(float) * 1e-3
        # Under 1 MiB nothing was measured: the time of 1 MiB less its bytes at the full rate, kept as start-up.
        rate = sizes[-1] / t[-1]
        start = max(t[0] - sizes[0] / rate, 0.4 * t[0])
        small = np.array([2.0**i for i in range(10, 20)])
        t_small = start + (t[0] - start) * small / sizes[0]
        ar = resample(np.concatenate([small, sizes]), np.concatenate([t_small, t]))
        if n in (2, 4, 8):
            rows.append(("V100", 150e9, "all_reduce", n, ar))
            for op in ("all_gather", "reduce_scatter", "all_to_all"):
                rows.append(("V100", 150e9, op, n, ar / 2))
    if check:
        return
    with open(os.path.join(out, "collectives.csv"), "w", newline="") as f:
        w = csv.writer(f, lineterminator="\n")
        f.write("# Microseconds of one collective between GPUs of one NVLink domain, by bytes of the full tensor (all-to-all: sent by one rank). Written by tools/fit_tables.py from\n"
                "# ai-dynamo/aiconfigurator@095f58a NCCL measurements (half). V100: VIA-Research/vTrain@f8dda84 all-reduce; under 1 MiB\n"
                "# extrapolated, the other operations taken as half of it (not measured). link_bytes_per_s: NVLink of that GPU.\n")
        w.writerow(["curve", "link_bytes_per_s", "op", "n_gpus"] + ["b%d" % s for s in STEPS])
        for curve, link, op, n, y in sorted(rows, key=lambda r: (r[0], [o for o, _ in OPS].index(r[2]), r[3])):
            w.writerow([curve, "%g" % link, op, n] + ["%.4g" % v for v in np.maximum.accumulate(y)])


def main():
    args = [a for a in sys.argv[1:] if a != "--check"]
    if len(args) != 2:
        sys.exit(__doc__)
    check = "--check" in sys.argv
    matmul(args[0], args[1], check)
    collectives(args[0], args[1], check)


if __name__ == "__main__":
    main()
