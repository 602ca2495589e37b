// The body of one CUDA kernel: the gated delta rule over all tokens. MLX writes its signature (cuda.py names the inputs).
// It knows nothing of masks: a masked token comes with decay 1 and strength 0.
//
// LANES neighbouring threads hold one row of a head's state in registers, KEY_DIM / LANES values each, in float32.
// Tokens come in tiles through shared memory; the next tile is on its way to registers while this one is computed.
// Both products of a token use the decayed state from before its change, so that neither waits for the other:
//   recall = S k,  readout = S q,  change = beta (v - recall),  y = readout + change (k.q),  S = S + change k

constexpr int QUADS = KEY_DIM / (4 * LANES);
constexpr int ROWS = THREADS / LANES;
constexpr int VECTORS_EACH = TILE * KEY_DIM / THREADS;
constexpr int DECAYS_EACH = DECAY_PER_KEY ? VECTORS_EACH : 1;
constexpr int VALUES_EACH = (TILE * ROWS + THREADS - 1) / THREADS;
static_assert(KEY_DIM % (4 * LANES) == 0 && TILE * KEY_DIM % THREADS == 0 && TILE <= THREADS, "shape of a tile");
static_assert(LANES <= 32 && (LANES & (LANES - 1)) == 0, "a row lies within a warp");

__shared__ __align__(16) float keys[TILE][KEY_DIM];
__shared__ __align__(16) float queries[TILE][KEY_DIM];
__shared__ __align__(16) float decays[TILE][DECAY_PER_KEY ? KEY_DIM : 1];
__shared__ float values[TILE][ROWS];
__shared__ float strengths[TILE];
__shared__ float overlaps[TILE];

const int num_tokens = v_shape[1];
const int num_key_heads = k_shape[2];
const int num_value_heads = v_shape[2];
const int value_dim = v_shape[3];

const int thread = threadIdx.x;
const int lane = thread % LANES;
const int row = thread / LANES;
const int first_row = blockIdx.x * ROWS;
const bool is_row = first_row + row < value_dim;
const size_t sequence = blockIdx.y / num_value_heads;
const int head = blockIdx.y % num_value_heads;
const int key_head = head / (num_value_heads / num_key_heads);

const size_t state_offset = (size_t(blockIdx.y) * value_dim + first_row + row) * KEY_DIM;
float4 state[QUADS];
#pragma unroll
for (int quad = 0; quad < QUADS; ++quad) {
  const size_t offset = state_offset + (quad * LANES + lane) * 4;
  state[quad] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (is_row) {
    state[quad].x = static_cast<float>(state_in[offset]);
    state[quad].y = static_cast<float>(state_in[offset + 1]);
    state[quad].z = static_cast<float>(state_in[offset + 2]);
    state[quad].w = static_cast<float>(state_in[offset + 3]);
  }
}

float next_keys[VECTORS_EACH];
float next_queries[VECTORS_EACH];
float next_decays[DECAYS_EACH];
float next_values[VALUES_EACH];
float next_strength = 0.0f;

const auto fetch = [&](const int begin) {
#pragma unroll
  for (int index = 0; index < VECTORS_EACH; ++index) {
    const int at = index * THREADS + thread;
    const int token = begin + at / KEY_DIM;
    const size_t offset = ((sequence * num_tokens + token) * num_key_heads + key_head) * KEY_DIM + at % KEY_DIM;
    next_keys[index] = token < num_tokens ? static_cast<float>(k[offset]) : 0.0f;
    next_queries[index] = token < num_tokens ? static_cast<float>(q[offset]) : 0.0f;
    if constexpr (DECAY_PER_KEY) {
      const size_t of_head = ((sequence * num_tokens + token) * num_value_heads + head) * KEY_DIM + at % KEY_DIM;
      next_decays[index] = token < num_tokens ? static_cast<float>(g[of_head]) : 1.0f;
    }
  }
#pragma unroll
  for (int index = 0; index < VALUES_EACH; ++index) {
    const int at = index * THREADS + thread;
    const int token = begin + at / ROWS;
    const int value = first_row + at % ROWS;
    const size_t offset = ((sequence * num_tokens + token) * num_value_heads + head) * value_dim + value;
    const bool is_there = at < TILE * ROWS && token < num_tokens && value < value_dim;
    next_values[index] = is_there ? static_cast<float>(v[offset]) : 0.0f;
  }
  if (thread < TILE && begin + thread < num_tokens) {
    const size_t offset = (sequence * num_tokens + begin + thread) * num_value_heads + head;
    next_strength = static_cast<float>(beta[offset]);
    if constexpr (!DECAY_PER_KEY) {
      next_decays[0] = static_cast<float>(g[offset]);
    }
  }
};

fetch(0);
for (int begin = 0; begin < num_tokens; begin += TILE) {
  const int count = num_tokens - begin < TILE ? num_tokens - begin : TILE;

  __syncthreads();  // nobody reads the last tile any more
#pragma unroll
  for (int index = 0; index < VECTORS_EACH; ++index) {
    const int at = index * THREADS + thread;
    keys[at / KEY_DIM][at % KEY_DIM] = next_keys[index];
    queries[at / KEY_DIM][at % KEY_DIM] = next_queries[index];
    if constexpr (DECAY_PER_KEY) {
      decays[at / KEY_DIM][at % KEY_DIM] = next_decays[index];
    }
  }
#pragma unroll
  for (int index = 0; index < VALUES_EACH; ++index) {
    const int at = index * THREADS + thread;
    if (at < TILE * ROWS) {
      values[at / ROWS][at % ROWS] = next_values[index];
    }
  }
  if (thread < TILE) {
    strengths[thread] = next_strength;
    if constexpr (!DECAY_PER_KEY) {
      decays[thread][0] = next_decays[0];
    }
  }
  __syncthreads();

  // Every thread takes part in each round: a shuffle needs the whole warp.
  for (int first = 0; first < count; first += ROWS) {
    const int token = first + row;
    float overlap = 0.0f;
    if (token < count) {
#pragma unroll
      for (int quad = 0; quad < QUADS; ++quad) {
        const int dim = (quad * LANES + lane) * 4;
        const float4 key = *reinterpret_cast<const float4*>(&keys[token][dim]);
        const float4 query = *reinterpret_cast<const float4*>(&queries[token][dim]);
        overlap += key.x * query.x + key.y * query.y + key.z * query.z + key.w * query.w;
      }
    }
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) {
      overlap += __shfl_xor_sync(0xffffffffu, overlap, distance);
    }
    if (token < count && lane == 0) {
      overlaps[token] = overlap;
    }
  }
  __syncthreads();

  if (begin + TILE < num_tokens) {
    fetch(begin + TILE);
  }

#pragma unroll 2
  for (int token = 0; token < count; ++token) {
    float4 recalled = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 reading = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float4 kept_keys[QUADS];
#pragma unroll
    for (int quad = 0; quad < QUADS; ++quad) {
      const int dim = (quad * LANES + lane) * 4;
      const float4 key = *reinterpret_cast<const float4*>(&keys[token][dim]);
      const float4 query = *reinterpret_cast<const float4*>(&queries[token][dim]);
      if constexpr (DECAY_PER_KEY) {
        const float4 decay = *reinterpret_cast<const float4*>(&decays[token][dim]);
        state[quad].x *= decay.x;
        state[quad].y *= decay.y;
        state[quad].z *= decay.z;
        state[quad].w *= decay.w;
      } else {
        const float decay = decays[token][0];
        state[quad].x *= decay;
        state[quad].y *= decay;
        state[quad].z *= decay;
        state[quad].w *= decay;
      }
      recalled.x += state[quad].x * key.x;
      recalled.y += state[quad].y * key.y;
      recalled.z += state[quad].z * key.z;
      recalled.w += state[quad].w * key.w;
      reading.x += state[quad].x * query.x;
      reading.y += state[quad].y * query.y;
      reading.z += state[quad].z * query.z;
      reading.w += state[quad].w * query.w;
      kept_keys[quad] = key;
    }
    float recall = (recalled.x + recalled.y) + (recalled.z + recalled.w);
    float readout = (reading.x + reading.y) + (reading.z + reading.w);
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2) {
      recall += __shfl_xor_sync(0xffffffffu, recall, distance);
      readout += __shfl_xor_sync(0xffffffffu, readout, distance);
    }
    const float change = strengths[token] * (values[token][row] - recall);
#pragma unroll
    for (int quad = 0; quad < QUADS; ++quad) {
      state[quad].x += change * kept_keys[quad].x;
      state[quad].y += change * kept_keys[quad].y;
      state[quad].z += change * kept_keys[quad].z;
      state[quad].w += change * kept_keys[quad].w;
    }
    if (lane == 0 && is_row) {
      const size_t offset = (sequence * num_tokens + begin + token) * num_value_heads + head;
      y[offset * value_dim + first_row + row] = static_cast<Output>(readout + change * overlaps[token]);
    }
  }
}

if (is_row) {
#pragma unroll
  for (int quad = 0; quad < QUADS; ++quad) {
    const size_t offset = state_offset + (quad * LANES + lane) * 4;
    state_out[offset] = state[quad].x;
    state_out[offset + 1] = state[quad].y;
    state_out[offset + 2] = state[quad].z;
    state_out[offset + 3] = state[quad].w;
  }
}
