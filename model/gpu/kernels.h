// The device's arithmetic, as functions that put kernels on a stream. No CUDA header is needed to call them.
//
// All pointers are device memory unless a name says host; `stream` is a cudaStream_t. Sums are float32. A row's result
// does not depend on the rows computed with it, nor on how many there are: every kernel treats rows alike and adds in
// an order that shapes alone decide. (Products of prompts go through a library: prompt_products.h.)
// Rows beyond those of a pass (padding) are those whose slot is negative: nothing is read or written for them but their
// own activations. Called by gpu/decoder and the benches.
#pragma once

#include "model/families/config.h"
#include "model/files/random_words.h"
#include "model/pass/logit_needs.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace entrodraft::model::gpu {

enum class NumberType { float32, bfloat16, float16 };
std::size_t bytes_of(NumberType type);

inline constexpr int kMaxPromptRows = 512; // of a prompt's chunk

// Rows of a pass, [rows] each, in device memory: a graph that reads them is launched again with other contents.
struct RowTable {
    const std::int32_t* tokens = nullptr;
    const std::int32_t* slots = nullptr;        // negative: padding
    const std::int32_t* positions = nullptr;    // rotary
    const std::int32_t* places = nullptr;       // in the cache, where the row's own keys and values go
    const std::int32_t* n_keys = nullptr;       // that the row sees, up to its own; a layer's window holds the last
    const std::int32_t* prefix_slots = nullptr; // places [0, prefix_length) are in this slot
    const std::int32_t* prefix_lengths = nullptr;
    // Key i is at place i. Of a tree only below mask_begin: behind it come the row's ancestors and the row, in order,
    // at mask_begin + b for each bit b that is set in its mask. A negative begin: no tree.
    const std::int32_t* mask_begins = nullptr;
    const std::uint64_t* masks = nullptr; // [rows][mask_words]
    // Of a model with an encoder: the slot that the row's source has in the cache of sources, and how long it is.
    const std::int32_t* source_slots = nullptr; // negative: none
    const std::int32_t* source_lengths = nullptr;
    int rows = 0; // with padding
    int mask_words = 0;
};
inline constexpr int kMaskWords = 2; // of trees of up to 128 nodes

// What becomes of a product before it is stored: nothing; activation(y); or, where w's rows are gates and ups by turns,
// kGateGroup of each, n / 2 numbers y[r][i] = activation(gate i) * up i.
enum class Epilogue { none, activation, gate };
inline constexpr int kGateGroup = 8;

// What w is, where not numbers: codes of 8 or 4 bits, and scales. A weight is its scale times code, float8 or
// values[code], less its offset, where there are offsets: scale times zero.
enum class Code { none, int8, float8, int4, table };
struct CodeForm {
    Code code = Code::none;
    int group = 0;            // inputs that share a scale; 0: all of a row, and the scale is float32
    bool wide_scales = false; // of groups: float32; else bfloat16
    bool has_offsets = false; // float32, each behind its scale
    friend bool operator==(const CodeForm&, const CodeForm&) = default;
};
inline constexpr CodeForm kRoundedInt4 = {Code::int4, 64}; // of weights that are rounded when they are loaded
// Those that the kernels know, the larger groups first. Scales of larger groups are repeated.
inline constexpr CodeForm kCodeForms[] = {
    {Code::int8},
    {Code::float8},
    kRoundedInt4,
    {Code::int4, 128, true},
    {Code::int4, 128, true, true},
    {Code::int4, 32, true},
    {Code::int4, 32, true, true},
    {Code::table, 64, true},
    {Code::table, 32},
    {Code::int8, 64, true},
    {Code::int8, 32, true},
    {Code::int8, 16, true},
    {Code::int8, 16, true, true},
    {Code::float8, 64, true},
};

// Rows of codes lie in chunks of 64 bytes, those of 16 bits too: four runs of 16 bytes, of which run t has inputs 8 t
// to 8 t + 7 of each 32. So a quad of lanes reads 16 bytes each, as of all types, and two steps of a tensor core are 32
// inputs that follow each other, which may have a scale of their own. A word of 4 bits has 8 inputs, the even ones in
// its low half; a code is 8 more than the weight, a place in a table 8 more modulo 16, and where there is no input, 8.
inline constexpr int kChunkBytes = 64, kRunInputs = 32;
inline constexpr std::uint32_t kNoInt4s = 0x88888888u;
ENTRODRAFT_ON_DEVICES constexpr bool has_4_bits(const CodeForm& form) {
    return form.code == Code::int4 || form.code == Code::table;
}
ENTRODRAFT_ON_DEVICES constexpr int chunk_inputs(const CodeForm& form) {
    return has_4_bits(form) ? 128 : 64;
}
ENTRODRAFT_ON_DEVICES constexpr int chunks_of(const CodeForm& form, int inputs) {
    return (inputs + chunk_inputs(form) - 1) / chunk_inputs(form);
}
// Of a chunk with groups; each takes so many bytes, its offset included.
ENTRODRAFT_ON_DEVICES constexpr int scales_of_chunk(const CodeForm& form) {
    return form.group == 0 ? 0 : chunk_inputs(form) / form.group;
}
ENTRODRAFT_ON_DEVICES constexpr int scale_bytes(const CodeForm& form) {
    return !form.wide_scales ? 2 : form.has_offsets ? 8 : 4;
}
// Where input i of a row is: its byte, of 8 bits.
ENTRODRAFT_ON_DEVICES constexpr int int8_place(int i) {
    return i / 64 * kChunkBytes + i % 32 / 8 * 16 + i % 64 / 32 * 8 + i % 8;
}
// Of 4: its word, and the bit of that at which it begins.
ENTRODRAFT_ON_DEVICES constexpr int int4_word(int i) {
    return i / 128 * (kChunkBytes / 4) + i % 32 / 8 * 4 + i % 128 / 32;
}
ENTRODRAFT_ON_DEVICES constexpr int int4_bit(int i) {
    return 4 * (i % 8 / 2 + 4 * (i % 2));
}

// y[r][n] = x[r] . w[n] + bias[n]. Rows of w and x lie `stride` elements apart, a multiple of kLinearAlign, zeros
// behind k. Of codes a row of w is chunks_of(form, stride) chunks, and x has 16 bits.
struct Linear {
    NumberType type = NumberType::float32; // of w, where it is numbers, and x
    const void* w = nullptr;
    const void* x = nullptr;
    int k = 0;
    int stride = 0;
    int n = 0;
    int rows = 0;
    const float* bias = nullptr; // [n] or none
    void* y = nullptr;           // [rows][y_stride]
    int y_stride = 0;
    NumberType y_type = NumberType::float32;
    bool add = false; // y += instead; float32 only
    CodeForm form = {};
    const float* scales = nullptr;      // [n], of codes without groups
    const void* group_scales = nullptr; // [n][chunks][scales_of_chunk(form)], of the others
    const float* values = nullptr;      // [16], of Code::table
    Epilogue epilogue = Epilogue::none;
    Activation activation = Activation::silu; // of the other epilogues
    float gate_limit = 0, gate_slope = 1;     // of gates: ExpertsConfig's swiglu_limit and swiglu_slope
};
void linear(void* stream, const Linear& call);
// y = bias, or y += bias where the call adds to y: before a product that is added to it. Any number of rows.
void start_with_bias(void* stream, const Linear& call);
inline constexpr int kLinearAlign = 64; // elements
// Numbers from one row of a matrix or of activations to the next, where a row has so many.
constexpr int aligned(int numbers) {
    return (numbers + kLinearAlign - 1) / kLinearAlign * kLinearAlign;
}

// The same of experts, whose matrices lie one behind the other, each of n rows: a pair is a row and an expert that it
// goes through, and y[pair] = x[row of the pair] . w[n of its expert] + bias. No y +=.
struct ExpertLinear : Linear { // rows: how many pairs there may be
    int n_experts = 0;
    const std::int32_t* begin = nullptr;     // [n_experts + 1]: pairs of expert e are [begin[e], begin[e + 1])
    const std::int32_t* live = nullptr;      // [n_experts]: those that have pairs, then -1
    const std::int32_t* from_rows = nullptr; // [pairs], or none: x is by pairs
};
void expert_linear(void* stream, const ExpertLinear& call);

// The experts of rows, as model::choose_experts() has them, and the pairs of rows and experts, in the order of experts,
// then of rows. Padding has no experts.
struct ChooseExperts {
    const float* logits = nullptr; // [rows][stride]
    int stride = 0;
    const float* correction = nullptr; // [n_experts] or none
    int n_experts = 0, n_chosen = 0;
    RouterScore score = RouterScore::softmax;
    int n_groups = 1, n_chosen_groups = 1, n_group_best = 1;
    bool normalizes = false;
    float scale = 1;
    std::int32_t* chosen = nullptr;    // workspace, [rows][n_chosen]
    float* weights = nullptr;          // [rows][n_chosen]
    std::int32_t* pairs = nullptr;     // [rows][n_chosen]: pairs of a row; -1: none
    std::int32_t* begin = nullptr;     // as ExpertLinear has it
    std::int32_t* live = nullptr;      // the same
    std::int32_t* pair_rows = nullptr; // [rows * n_chosen]: the row of each pair
};
inline constexpr int kMaxExperts = 512, kMaxChosen = 32;
void choose_experts(void* stream, const RowTable& table, const ChooseExperts& call);

// y[r] = y[r] * sigmoid(gate[r]) + the sum over the row's pairs, in order, of their weights times their outputs.
struct AddExperts {
    const float* outputs = nullptr; // [pairs][width], or none: this rank has no part of experts
    const float* weights = nullptr; // as ChooseExperts has them
    const std::int32_t* pairs = nullptr;
    int n_chosen = 0;
    const float* gates = nullptr; // [rows][gate_stride], or none: the sigmoid is 1
    int gate_stride = 0;
    bool keeps = false; // else y is 0 before
    float* y = nullptr; // [rows][width]
    int width = 0;
    int rows = 0;
};
void add_experts(void* stream, const AddExperts& call);

// x[r] = scale * table[token - first] (zeros where the token is another rank's) + positions[position].
struct Embed {
    NumberType type = NumberType::float32; // of the table
    const void* table = nullptr;           // [tokens held][stride]
    int stride = 0;
    int first_token = 0;
    int n_tokens = 0;
    float scale = 1;
    const float* positions = nullptr; // [positions][width] or none; from one rank only where ranks are summed
    int position_offset = 0;
    float* x = nullptr; // [rows][width]
    int width = 0;
};
void embed(void* stream, const RowTable& table, const Embed& call);

// x += delta, where there is one; then out = norm(x), where there is an out. Both norms: weight [width], bias or none.
struct NormCall {
    float* x = nullptr;           // [rows][x_stride], the residual stream
    int x_stride = 0;             // 0: width
    const float* delta = nullptr; // [n_parts][rows][width], added up in order of the parts: to be added to x
    int n_parts = 1;
    bool replaces_x = false; // x becomes delta
    Norm norm = Norm::rms;
    const float* weight = nullptr; // none: out is x itself, rounded
    const float* bias = nullptr;
    float epsilon = 0;
    void* out = nullptr; // [rows][out_stride], of out_type
    NumberType out_type = NumberType::float32;
    int out_stride = 0;
    int width = 0;
    int rows = 0;
    const std::int32_t* from_rows = nullptr; // [rows]: row r is made of this row of x; no delta then
};
void add_and_norm(void* stream, const NormCall& call);

// out = f(gate) * up, or f(up) without a gate; of what a library has multiplied.
struct ActivateCall {
    Activation activation = Activation::silu;
    NumberType type = NumberType::float32;
    const void* wide = nullptr; // [rows][wide_stride]: gates and ups by turns, as Epilogue has them; or ups alone
    int wide_stride = 0;
    bool gated = true;
    void* out = nullptr; // [rows][out_stride]
    int out_stride = 0;
    int width = 0;
    int rows = 0;
};
void activate(void* stream, const ActivateCall& call);

// A cell and its output, of a draft head that is an LSTM.
struct LstmCall {
    Activation activation = Activation::gelu;
    float* gates = nullptr;      // [rows][4][width]: forget, input, output, candidate
    float* x = nullptr;          // [rows][width]
    const float* cell = nullptr; // [rows][cell_stride], or none: zeros
    int cell_stride = 0;
    int width = 0;
    int rows = 0;
};
// x = sigmoid(forget + x) cell + sigmoid(input + x) activation(candidate), and output = sigmoid(output + x).
void lstm_cell(void* stream, const LstmCall& call);
// x = output activation(x).
void lstm_output(void* stream, const LstmCall& call);

// An LSTM cell behind a state of zeros.
struct CellCall {
    const float* gates = nullptr; // [rows][3][width]: input, candidate, output
    float* x = nullptr;           // [rows][width]
    int width = 0;
    int rows = 0;
};
// x = sigmoid(output) tanh(sigmoid(input) tanh(candidate)).
void run_cell(void* stream, const CellCall& call);

// Between two passes of a draft head's loop: features[r] = hidden[parents[r]], and what the pass before made of its own
// rows is kept, states[*first - 1 + r] = hidden[r].
struct CarryStatesCall {
    const float* hidden = nullptr;         // [rows of the pass before][width]
    const std::int32_t* parents = nullptr; // [rows]
    float* features = nullptr;             // [rows][width]
    int width = 0;
    int rows = 0;
    const std::int32_t* first = nullptr; // in the loop, row 0 being the text's
    float* states = nullptr;             // [n_states][width]; null: they are not kept
    int n_states = 0;
};
void carry_states(void* stream, const CarryStatesCall& call);

// The cache of a rank, in device memory: [layer][slot][kv_head][capacity][head_stride], keys and values apart, or, of
// latent attention, values that are the first numbers of keys; zeros behind head_dim.
struct CacheView {
    NumberType type = NumberType::float32;
    void* keys = nullptr;
    void* values = nullptr;
    int n_slots = 0;
    int n_kv_heads = 0;
    int capacity = 0;    // positions a slot
    int head_dim = 0;    // at most kMaxHeadDim, of latent attention kMaxLatentDim
    int head_stride = 0; // head_dim rounded up to kHeadAlign
    int value_dim = 0;   // head_dim, of latent attention less, at most kMaxLatentValueDim
    ENTRODRAFT_ON_DEVICES constexpr bool is_latent() const { return value_dim < head_dim; }
};
inline constexpr int kHeadAlign = 8;
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kMaxLatentDim = 576, kMaxLatentValueDim = 512;
// Numbers that attend() holds of a query's values.
ENTRODRAFT_ON_DEVICES constexpr int padded_values(int value_dim) {
    return (value_dim + kHeadAlign - 1) / kHeadAlign * kHeadAlign;
}

// Positions [from, from + count) of a slot, of every layer and head, to those from `to` on of a slot. They do not
// overlap.
struct CopyCall {
    CacheView cache;
    int n_layers = 0;
    int from_slot = 0, from = 0;
    int to_slot = 0, to = 0;
    int count = 0;
};
void copy_positions(void* stream, const CopyCall& call);

// Positions from[i] of a slot, of every layer and head, to positions to + i. `from` increases, from[i] >= to + i.
struct MoveCall {
    static constexpr int kMaxCount = 128;
    CacheView cache;
    int n_layers = 0;
    int slot = 0;
    int to = 0;
    int count = 0;
    std::int32_t from[kMaxCount] = {};
};
void move_positions(void* stream, const MoveCall& call);

// The heads of a pass's rows in a layer.
struct HeadRows {
    CacheView cache;
    int layer = 0;
    void* qkv = nullptr; // [rows][stride] of the cache's type: query heads, key heads, value heads
    int stride = 0;
    int n_query_heads = 0;
};

// Queries and keys are normed and turned in place, keys and values go into the cache at the rows' places.
struct PlaceCall : HeadRows {
    const float* query_norm = nullptr; // [head_dim], RMSNorm of every head; or none
    const float* key_norm = nullptr;
    float norm_epsilon = 0;
    // Where it is there, a row's heads are normed together, and norms are [heads][head_dim]: from each rank, in order,
    // [rows][2], the sums of squares of its queries and keys, which are query_count and key_count in all.
    const float* row_squares = nullptr;
    int n_square_parts = 1;
    float query_count = 0, key_count = 0;
    const float* cosines = nullptr; // [positions][rotary_dims / 2]; none: nothing is turned
    const float* sines = nullptr;
    int rotary_dims = 0;
    bool interleaved = false; // as Rope has it
};
void place_keys(void* stream, const RowTable& table, const PlaceCall& call);

// Of latent attention: to = RMSNorm of a row's first numbers.
struct NormVectorsCall {
    NumberType type = NumberType::float32;
    const void* from = nullptr; // [rows][from_stride]
    int from_stride = 0;
    const float* weight = nullptr; // [width]
    int width = 0;
    float epsilon = 0;
    void* to = nullptr; // [rows][to_stride]
    int to_stride = 0;
    int rows = 0;
};
void norm_vectors(void* stream, const NormVectorsCall& call);

// A row's vector of keys and values, normed, and the key behind it, rotated, go into the cache at the row's place; the
// rotated ends of its queries, rotated, to the ends of those that absorb() makes of the rest.
struct PlaceLatentsCall {
    CacheView cache;
    int layer = 0;
    const void* vectors = nullptr; // [rows][vector_stride] of the cache's type, as all here
    int vector_stride = 0;
    const float* norm = nullptr; // [value_dim]
    float norm_epsilon = 0;
    const void* queries = nullptr; // [rows][query_stride]: [n_query_heads][query_dim]
    int query_stride = 0, query_dim = 0;
    void* absorbed = nullptr; // [rows][absorbed_stride]: [n_query_heads][head_stride]
    int absorbed_stride = 0;
    int n_query_heads = 0;
    const float* cosines = nullptr; // [positions][rotated numbers / 2]
    const float* sines = nullptr;
    bool interleaved = false; // as Rope has it
};
void place_latents(void* stream, const RowTable& table, const PlaceLatentsCall& call);

// y[r][head] = x[r][head] . w[head], of heads with a matrix of their own each, all of one type. Rows of w lie `stride`
// elements apart, zeros behind k; heads of x and y steps.
struct HeadLinear {
    NumberType type = NumberType::float32;
    const void* w = nullptr; // [n_heads][n][stride]
    int k = 0, stride = 0, n = 0, n_heads = 0;
    void* x = nullptr; // [rows][x_stride]
    int x_stride = 0, x_step = 0;
    void* y = nullptr; // [rows][y_stride]
    int y_stride = 0, y_step = 0;
    int rows = 0;
};
void head_linear(void* stream, const HeadLinear& call);

// Sums of squares of a row's own queries, and of its keys but for those of heads that another rank counts.
struct SquaresCall : HeadRows {
    const std::int32_t* counts_head = nullptr; // [n_kv_heads]: 0 or 1
    float* squares = nullptr;                  // [rows][2]
    int rows = 0;
};
void sum_squares(void* stream, const SquaresCall& call);

// attended[r][query head] = softmax(scale q . keys) values over the keys that the row sees, in blocks of kKeyBlock keys
// at fixed places, merged in order. qkv is as place_keys has left it; of sources it has query heads alone, and of
// latent attention these, head_stride numbers apart. attended: [n_query_heads][value_dim].
struct AttendCall : HeadRows {
    const std::int32_t* kv_head_of = nullptr; // [n_query_heads], own key head of each
    float scale = 1;
    float soft_cap = 0;
    // ALiBi, [n_query_heads]: a key's score gains slope * its place; scaled: that rounded to bfloat16, times scale
    const float* slopes = nullptr;
    bool scaled_alibi = false;
    // [n_query_heads][2 max_distance + 1] or none: a key's score gains the number of its distance behind the row's
    // position, from -max_distance on; those beyond are as these.
    const float* relative_biases = nullptr;
    int max_distance = 0;
    const float* sinks = nullptr; // [n_query_heads] or none: one more score of each head's softmax, without a value
    int window = 0;               // of this layer: a row sees its last `window` keys; 0: all
    float* parts = nullptr;       // workspace, attend_workspace_floats() of the cache
    int* arrived = nullptr;       // workspace, attend_workspace_counters() of the cache, zeros before and after
    void* attended = nullptr;     // [rows][out_stride] of the cache's type
    int out_stride = 0;
};
inline constexpr int kKeyBlock = 256;
constexpr int key_blocks(int n_keys) {
    return (n_keys + kKeyBlock - 1) / kKeyBlock;
}
// A query's part of a block of keys is kPartHead floats and its values. The parts of a row over a full cache:
inline constexpr int kPartHead = 4;
constexpr std::size_t part_floats(int n_query_heads, int value_dim, int capacity) {
    return static_cast<std::size_t>(n_query_heads) * static_cast<std::size_t>(key_blocks(capacity)) *
           static_cast<std::size_t>(kPartHead + padded_values(value_dim));
}
// Rows that are attended at once, whose parts the workspace holds: all of a pass where 64 MiB are enough, 16 at least.
inline constexpr int kMaxAttendRows = 128;
constexpr int attend_rows(int n_query_heads, int value_dim, int capacity) {
    constexpr std::size_t kFloats = std::size_t{16} << 20, kMin = 16, kMax = kMaxAttendRows;
    const std::size_t rows = kFloats / std::max<std::size_t>(1, part_floats(n_query_heads, value_dim, capacity));
    return static_cast<int>(std::bit_floor(std::clamp(rows, kMin, kMax)));
}
constexpr std::size_t attend_workspace_floats(int n_query_heads, int value_dim, int capacity) {
    return static_cast<std::size_t>(attend_rows(n_query_heads, value_dim, capacity)) *
           part_floats(n_query_heads, value_dim, capacity);
}
// The parts of kMergedBlocks blocks, at fixed places, are merged to one by whoever stores the last of them, and these
// by who merges the last group. Counters of a query: of its groups, and of all of them.
inline constexpr int kMergedBlocks = 16;
constexpr int merged_groups(int n_blocks) {
    return (n_blocks + kMergedBlocks - 1) / kMergedBlocks;
}
constexpr int counters_of_query(int capacity) {
    return merged_groups(key_blocks(capacity)) + 1;
}
constexpr std::size_t attend_workspace_counters(int n_query_heads, int value_dim, int capacity) {
    return static_cast<std::size_t>(attend_rows(n_query_heads, value_dim, capacity)) *
           static_cast<std::size_t>(n_query_heads) * static_cast<std::size_t>(counters_of_query(capacity));
}
void attend(void* stream, const RowTable& table, const AttendCall& call);
// The same of a prompt's chunk, rows of one slot in order and padding behind them, by a kernel for many rows whose bits
// are others: they depend on a row's own keys alone. Over float32 and latent caches, and of heads of more than 128
// dimensions, it is attend().
void attend_prompt(void* stream, const RowTable& table, const AttendCall& call);

// What a row of logits says, as LogitStats has it; sums in float32 within a block of logits, merged in double.
struct DeviceLogitStats {
    float max;
    std::int32_t arg_max; // -1: no logits
    double sum_exp, sum_shifted_exp;
    float runner_up;
};
struct DeviceNoise { // as RowNoise
    std::uint32_t key[2];
    std::uint64_t position;
    double temperature;
};
struct DeviceNoisy { // as NoisyToken
    double value;
    std::int32_t token;
    float logit;
    double runner_up;
};
struct SummarizeCall {
    const float* logits = nullptr; // [rows][stride]
    std::size_t stride = 0;
    int rows = 0;
    int count = 0;                        // logits that count, from the first
    int first_token = 0;                  // the token of the first
    DeviceLogitStats* partial = nullptr;  // workspace, [rows][kStatsBlocks]
    DeviceLogitStats* stats = nullptr;    // [rows]
    const DeviceNoise* noises = nullptr;  // [rows], or none
    DeviceNoisy* noisy_partial = nullptr; // workspace, [rows][kStatsBlocks]
    DeviceNoisy* noisy = nullptr;         // [rows]
    const std::int32_t* tokens = nullptr; // [count], in place of first_token, first_token + 1, ...; or null
};
inline constexpr int kStatsBlocks = 32; // a lane of a warp each when they are merged
void summarize_logits(void* stream, const SummarizeCall& call);

// Rows of random weights (model/files/generated_values.h), in the codes of a type: out[r][i] is the code of
// element (first_row + r) * row_step + (first_input + i) * input_step. With scales the codes are those of a row whose
// largest magnitude is 2 m + 1 steps, by the m of the whole row. With group scales they are int4's, of groups that
// begin where the inputs do, and rounded as on the CPU (quantise_group()).
struct RandomRows {
    std::uint64_t key = 0;
    std::uint64_t first_row = 0, row_step = 0, input_step = 1;
    int rows = 0;
    int first_input = 0, inputs = 0;
    int whole_inputs = 0;                  // of the stored row
    int code_bytes = 0;                    // 1, 2 or 4
    const void* codes = nullptr;           // [kRandomWeights], with scales [kRandomWeights / 2][kRandomWeights]
    const float* scale_of = nullptr;       // [kRandomWeights / 2]
    float* scales = nullptr;               // [rows], or none
    std::uint16_t* group_scales = nullptr; // [rows][chunks][2], or none
    void* out = nullptr;                   // [rows][stride]
    int stride = 0;
};
void fill_random_rows(void* stream, const RandomRows& call);

// out[r][i] = x[r][order[i]], of rows of so many 16-bit numbers, `stride` apart, of which the first k are ordered; the
// others stay.
struct OrderCall {
    const std::uint16_t* x = nullptr;
    const std::int32_t* order = nullptr;
    std::uint16_t* out = nullptr;
    int k = 0;
    int stride = 0;
    int rows = 0;
};
void order_inputs(void* stream, const OrderCall& call);

// x[r][0..width) = cap * tanh(x / cap) of rows * stride floats. For logits.
void soft_cap(void* stream, float* x, std::size_t count, float cap);

} // namespace entrodraft::model::gpu
