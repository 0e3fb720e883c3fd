// A few rows times the transpose of a big bf16 matrix: out[w][n] = sum over k of x[w][k] weight[n][k].
//
// Bound by reading the matrix, so: every lane loads 16 contiguous bytes of a row straight into the
// registers that the tensor core reads. Which k such a register stands for does not matter as long
// as x is loaded in the same pattern. A block's warps share its rows and divide k among them.
//
// TILES: 16 rows of the matrix each. COLUMNS: 8 rows of x each. DEPTH: pieces of 32 k in flight per
// warp, even: warps take pieces in pairs, so which warp adds what depends on WARPS alone. WARPS: warps of a block. BLOCKS: blocks that must fit a multiprocessor together. LEAD:
// rounds before its end at which a block lets the next kernel start: too early, and the two compete
// for the memory while the first has its stragglers. AHEAD: rounds of pieces fetched into the L2
// cache before x is ready. GATED: the matrix holds gates and then ups; half of a tile's rows are the
// one, half the other, and out is silu(gate) * up.

#define ROWS (TILES * 16)
#define ROUND (WARPS * DEPTH)  // pieces that a block takes before each warp comes to its first again
#define OUT_ROWS (GATED ? ROWS / 2 : ROWS)
#define LANES 32
#define PIECE 4  // 16-byte vectors along k that the 4 lanes of a row load at once: 32 elements

__device__ __forceinline__ uint4 stream(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

__device__ __forceinline__ void multiply(float* sum, unsigned a0, unsigned a1, unsigned a2,
                                         unsigned a3, unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void store(float* out, float value) { *out = value; }

__device__ __forceinline__ void store(unsigned short* out, float value) {
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(*out) : "f"(value));
}

extern "C" __global__ void __launch_bounds__(WARPS* LANES, BLOCKS)
    product(const uint4* weight, const uint4* x, OUT* out, int num_rows, int num_out, int vectors) {
  __shared__ float sums[WARPS][COLUMNS * 8][ROWS];
  const int lane = threadIdx.x % LANES, warp = threadIdx.x / LANES;
  const int group = lane / 4, place = lane % 4;
  const int first = blockIdx.x * OUT_ROWS, pieces = vectors / PIECE;
  const uint4* rows[2 * TILES];
#pragma unroll
  for (int i = 0; i < 2 * TILES; ++i) {
    const int within = (GATED ? i / 2 : i) * 8 + group;
    const int row = min(first + within, num_out - 1) + (GATED && i % 2 ? num_out : 0);
    rows[i] = weight + (long long)row * vectors + place;
  }
  auto mine = [&](int round, int d) { return round + (d / 2 * WARPS + warp) * 2 + d % 2; };
  const uint4 zero = make_uint4(0, 0, 0, 0);
  uint4 w[DEPTH][2 * TILES], v[DEPTH][COLUMNS];
  int base = 0;
#pragma unroll
  for (int d = 0; d < DEPTH; ++d)
#pragma unroll
    for (int i = 0; i < 2 * TILES; ++i)
      w[d][i] = mine(base, d) < pieces ? stream(rows[i] + mine(base, d) * PIECE) : zero;
#if AHEAD > 0
  const int later = ROUND * PIECE;
  if (threadIdx.x < ROWS && (AHEAD + 1) * later <= vectors) {
    const int within = GATED ? threadIdx.x / 16 * 8 + threadIdx.x % 8 : threadIdx.x;
    const int row = min(first + within, num_out - 1) + (GATED && threadIdx.x / 8 % 2 ? num_out : 0);
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(
                     weight + (long long)row * vectors + later),
                 "r"(AHEAD * later * 16));
  }
#endif
  // Weights are nobody's output; x is what the kernel before wrote.
  asm volatile("griddepcontrol.wait;" ::: "memory");
  const uint4* given[COLUMNS];
  bool inside[COLUMNS];
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) {
    inside[c] = c * 8 + group < num_rows;
    given[c] = x + (long long)(c * 8 + group) * vectors + place;
#pragma unroll
    for (int d = 0; d < DEPTH; ++d)
      v[d][c] = inside[c] && mine(base, d) < pieces ? given[c][mine(base, d) * PIECE] : zero;
  }
  float sum[TILES][COLUMNS][4] = {};
  while (base < pieces) {
    base += ROUND;
    if (base + LEAD * ROUND >= pieces) asm volatile("griddepcontrol.launch_dependents;");
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
#pragma unroll
      for (int i = 0; i < TILES; ++i)
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) {
          const uint4 low = w[d][2 * i], high = w[d][2 * i + 1], column = v[d][c];
          multiply(sum[i][c], low.x, high.x, low.y, high.y, column.x, column.y);
          multiply(sum[i][c], low.z, high.z, low.w, high.w, column.z, column.w);
        }
      const int piece = mine(base, d);
#pragma unroll
      for (int i = 0; i < 2 * TILES; ++i)
        w[d][i] = piece < pieces ? stream(rows[i] + piece * PIECE) : zero;
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c)
        v[d][c] = inside[c] && piece < pieces ? given[c][piece * PIECE] : zero;
    }
  }
#pragma unroll
  for (int i = 0; i < TILES; ++i)
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        sums[warp][c * 8 + place * 2 + r % 2][i * 16 + group + r / 2 * 8] = sum[i][c][r];
  __syncthreads();
  for (int i = threadIdx.x; i < num_rows * OUT_ROWS; i += WARPS * LANES) {
    const int column = i / OUT_ROWS, row = i % OUT_ROWS;
    const int tile = GATED ? row / 8 * 16 + row % 8 : row;
    float total = 0, up = 0;
#pragma unroll
    for (int from = 0; from < WARPS; ++from) {
      total += sums[from][column][tile];
      if (GATED) up += sums[from][column][tile + 8];
    }
    if (GATED) total *= up / (1 + __expf(-total));
    if (first + row < num_out) store(out + (long long)column * num_out + first + row, total);
  }
}
