"""Runs the source of the CUDA kernel on the CPU: the threads of a block are fibers, advanced from barrier to barrier.

It shows what the kernel computes, and that its barriers are met by all threads; not that it is fast, nor that MLX and
NVRTC take it.
"""

import ctypes
import subprocess
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
import numpy as np

from engine.gated_delta.cuda import SOURCE_FILE, THREADS
from tests.unit.engine_gated_delta.regimes import Inputs

SHIM = r"""
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ucontext.h>
#include <vector>
#define __global__
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))
struct Index { int x, y, z; };
struct Shape { int sizes[4]; int operator[](int axis) const { return sizes[axis]; } };
struct float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static Index threadIdx, blockIdx;
static ucontext_t scheduler, fibers[THREADS];
static int waiting_at[THREADS];
static float offered[THREADS];
static void wait_at(int place) {
  const int thread = threadIdx.x;
  waiting_at[thread] = place;
  swapcontext(&fibers[thread], &scheduler);
  threadIdx.x = thread;
}
static void __syncthreads() { wait_at(1); }
static float __shfl_xor_sync(unsigned, float value, int distance) {
  offered[threadIdx.x] = value;
  wait_at(2);
  const float taken = offered[threadIdx.x ^ distance];
  wait_at(3);
  return taken;
}
static const float *q, *k, *v, *g, *beta, *state_in;
static float *y, *state_out;
static Shape k_shape, v_shape;
using Output = float;
static void kernel() {
"""
RUNNER = r"""
}
static void fiber() { kernel(); waiting_at[threadIdx.x] = 0; }
extern "C" int run(float** arrays, int batch, int num_tokens, int num_key_heads, int num_value_heads, int value_dim) {
  q = arrays[0]; k = arrays[1]; v = arrays[2]; g = arrays[3]; beta = arrays[4]; state_in = arrays[5];
  y = arrays[6]; state_out = arrays[7];
  k_shape = {{batch, num_tokens, num_key_heads, KEY_DIM}};
  v_shape = {{batch, num_tokens, num_value_heads, value_dim}};
  std::vector<std::vector<char>> stacks(THREADS, std::vector<char>(65536));
  const int rows = THREADS / LANES;
  for (int block = 0; block < (value_dim + rows - 1) / rows * batch * num_value_heads; ++block) {
    blockIdx = {block / (batch * num_value_heads), block % (batch * num_value_heads), 0};
    for (int thread = 0; thread < THREADS; ++thread) {
      getcontext(&fibers[thread]);
      fibers[thread].uc_stack.ss_sp = stacks[thread].data();
      fibers[thread].uc_stack.ss_size = stacks[thread].size();
      fibers[thread].uc_link = &scheduler;
      makecontext(&fibers[thread], fiber, 0);
    }
    do {
      for (int thread = 0; thread < THREADS; ++thread) {
        threadIdx.x = thread;
        swapcontext(&scheduler, &fibers[thread]);
        if (waiting_at[thread] != waiting_at[0]) return 1;  // threads part ways at a barrier
      }
    } while (waiting_at[0] != 0);
  }
  return 0;
}
"""


@dataclass(frozen=True)
class EmulatedKernel:
    library: ctypes.CDLL

    @classmethod
    def compiled(cls, folder: Path, *, key_dim: int, lanes: int, tile_len: int, is_decay_per_key: bool = False):
        sizes = {"KEY_DIM": key_dim, "LANES": lanes, "TILE": tile_len, "THREADS": THREADS}
        constants = [f"constexpr int {name} = {size};" for name, size in sizes.items()]
        constants.append(f"constexpr bool DECAY_PER_KEY = {str(is_decay_per_key).lower()};")
        name = f"{key_dim}-{lanes}-{tile_len}-{is_decay_per_key}"
        source, library = folder / f"{name}.cpp", folder / f"{name}.so"
        source.write_text("\n".join([*constants, SHIM, SOURCE_FILE.read_text(encoding="utf-8"), RUNNER]))
        command = ["g++", "-std=c++17", "-O1", "-shared", "-fPIC", "-Wno-unknown-pragmas", "-o", library, source]
        subprocess.run(command, check=True, capture_output=True)
        return cls(ctypes.CDLL(str(library)))

    def __call__(self, inputs: Inputs) -> tuple[mx.array, mx.array]:
        named = (inputs.q, inputs.k, inputs.v, inputs.g, inputs.beta, inputs.state)
        arrays = [np.ascontiguousarray(array, dtype=np.float32) for array in named]
        y, state = np.full_like(arrays[2], np.nan), np.full_like(arrays[5], np.nan)
        floats = ctypes.POINTER(ctypes.c_float)
        pointers = (floats * 8)(*(array.ctypes.data_as(floats) for array in (*arrays, y, state)))
        batch, num_tokens, num_value_heads, value_dim = arrays[2].shape
        parted = self.library.run(pointers, batch, num_tokens, arrays[1].shape[2], num_value_heads, value_dim)
        assert not parted, "the threads of a block met different barriers"
        return mx.array(y), mx.array(state)
