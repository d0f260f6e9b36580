// The device's arithmetic, as functions that put kernels on a stream. No CUDA header is needed to call them.
//
// All pointers are device memory unless a name says host; `stream` is a cudaStream_t. Sums are float32. A row's result
// depends neither on the rows computed with it nor on their number. Every kernel treats rows alike, and adds in an
// order that shapes alone decide. (Products of prompts go through a library: prompt_products.h.) Padding rows have a
// negative slot: nothing is read or written for them except their own activations. Called by gpu/decoder and the
// benches.
#pragma once

#include "model/families/config.h"
#include "model/files/random_words.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace entrodraft::model::gpu {

enum class NumberType { float32, bfloat16, float16 };
std::size_t bytes_of(NumberType type);

inline constexpr int kMaxPromptRows = 512; // in a prompt's chunk

// The rows of a pass, [rows] per column, in device memory. A graph that reads them can run with other contents.
struct RowTable {
    const std::int32_t* tokens = nullptr;
    const std::int32_t* slots = nullptr;        // negative: padding
    const std::int32_t* positions = nullptr;    // rotary
    const std::int32_t* places = nullptr;       // cache place of the row's own keys and values
    const std::int32_t* n_keys = nullptr;       // keys that the row sees, itself included; a window keeps the last
    const std::int32_t* prefix_slots = nullptr; // places [0, prefix_length) are in this slot
    const std::int32_t* prefix_lengths = nullptr;
    // Key i is at place i. In a tree this holds below mask_begin only: after it the row's ancestors and the row follow
    // in order, at place mask_begin + b for each set bit b of the mask. If mask_begin is negative, there is no tree.
    const std::int32_t* mask_begins = nullptr;
    const std::uint64_t* masks = nullptr; // [rows][mask_words]
    // For a model with an encoder: the slot of the row's source in the cache of sources, and the source's length.
    const std::int32_t* source_slots = nullptr; // negative: none
    const std::int32_t* source_lengths = nullptr;
    int rows = 0; // with padding
    int mask_words = 0;
};
inline constexpr int kMaskWords = 2; // for trees of up to 128 nodes

// The last step of a product before it is stored. none stores y. activation stores activation(y). gate stores n / 2
// numbers y[r][i] = activation(gate i) * up i; the rows of w alternate kGateGroup gates and kGateGroup ups.
enum class Epilogue { none, activation, gate };
inline constexpr int kGateGroup = 8;

// The form of w if it holds codes of 8 or 4 bits with scales in place of numbers. A weight is its scale times its code,
// float8 or values[code]. If there are offsets, the weight is that less its offset, which is scale times zero.
enum class Code { none, int8, float8, int4, table };
struct CodeForm {
    Code code = Code::none;
    int group = 0;            // inputs that share a scale; 0: the whole row shares one float32 scale
    bool wide_scales = false; // group scales are float32, else bfloat16
    bool has_offsets = false; // each float32 offset follows its scale
    friend bool operator==(const CodeForm&, const CodeForm&) = default;
};
inline constexpr CodeForm kRoundedInt4 = {Code::int4, 64}; // weights that are rounded when they are loaded
// The forms that the kernels know, larger groups first. Scales of larger groups are repeated.
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

// Rows of codes lie in chunks of 64 bytes, as rows of 16-bit numbers do. A chunk has four runs of 16 bytes; run t has
// inputs 8 t to 8 t + 7 of each 32. So each lane of a quad reads 16 bytes, as for all types, and two tensor-core steps
// take 32 consecutive inputs, which may have their own scale.
// A word of 4-bit codes has 8 inputs, the even ones in its low half. A code is the weight plus 8, or the table index
// plus 8 modulo 16; 8 where there is no input.
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
// Number of scales of a chunk with groups. Each takes scale_bytes() bytes, its offset included.
ENTRODRAFT_ON_DEVICES constexpr int scales_of_chunk(const CodeForm& form) {
    return form.group == 0 ? 0 : chunk_inputs(form) / form.group;
}
ENTRODRAFT_ON_DEVICES constexpr int scale_bytes(const CodeForm& form) {
    return !form.wide_scales ? 2 : form.has_offsets ? 8 : 4;
}
// Returns the byte of input i in a row of 8-bit codes.
ENTRODRAFT_ON_DEVICES constexpr int int8_place(int i) {
    return i / 64 * kChunkBytes + i % 32 / 8 * 16 + i % 64 / 32 * 8 + i % 8;
}
// Return the word of input i in a row of 4-bit codes, and the first bit of the input in that word.
ENTRODRAFT_ON_DEVICES constexpr int int4_word(int i) {
    return i / 128 * (kChunkBytes / 4) + i % 32 / 8 * 4 + i % 128 / 32;
}
ENTRODRAFT_ON_DEVICES constexpr int int4_bit(int i) {
    return 4 * (i % 8 / 2 + 4 * (i % 2));
}

// y[r][n] = x[r] . w[n] + bias[n]. Rows of w and x lie `stride` elements apart, a multiple of kLinearAlign, with zeros
// after k. If w holds codes, a row is chunks_of(form, stride) chunks, and x has 16 bits.
struct Linear {
    NumberType type = NumberType::float32; // type of x, and of w if it holds numbers
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
    const float* scales = nullptr;      // [n], for codes without groups
    const void* group_scales = nullptr; // [n][chunks][scales_of_chunk(form)], for codes with groups
    const float* values = nullptr;      // [16], for Code::table
    Epilogue epilogue = Epilogue::none;
    Activation activation = Activation::silu; // for the other epilogues
    float gate_limit = 0, gate_slope = 1;     // for gates: ExpertsConfig's swiglu_limit and swiglu_slope
};
void linear(void* stream, const Linear& call);
// y = bias, or y += bias if the call adds to y. Runs before a product that is added to y. Takes any number of rows.
void start_with_bias(void* stream, const Linear& call);
inline constexpr int kLinearAlign = 64; // elements
// Returns the stride of rows with that many numbers, in a matrix or in activations.
constexpr int aligned(int numbers) {
    return (numbers + kLinearAlign - 1) / kLinearAlign * kLinearAlign;
}

// The same for experts, whose matrices of n rows each follow one another. A pair is a row and one of its experts:
// y[pair] = x[row of the pair] . w[n of its expert] + bias. `add` is not supported.
struct ExpertLinear : Linear { // rows: the largest number of pairs
    int n_experts = 0;
    const std::int32_t* begin = nullptr;     // [n_experts + 1]: pairs of expert e are [begin[e], begin[e + 1])
    const std::int32_t* live = nullptr;      // [n_experts]: experts that have pairs, then -1
    const std::int32_t* from_rows = nullptr; // [pairs], or none: x has a row per pair
};
void expert_linear(void* stream, const ExpertLinear& call);

// Chooses the experts of rows as model::choose_experts() does, and lists the pairs of rows and experts, ordered by
// expert, then by row. Padding has no experts.
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
    std::int32_t* pairs = nullptr;     // [rows][n_chosen]: pairs of a row; -1: not a pair
    std::int32_t* begin = nullptr;     // as ExpertLinear has it
    std::int32_t* live = nullptr;      // the same
    std::int32_t* pair_rows = nullptr; // [rows * n_chosen]: the row of each pair
};
inline constexpr int kMaxExperts = 512, kMaxChosen = 32;
void choose_experts(void* stream, const RowTable& table, const ChooseExperts& call);

// y[r] = y[r] * sigmoid(gate[r]) + the sum over the row's pairs, in order, of weight * output.
struct AddExperts {
    const float* outputs = nullptr; // [pairs][width], or none: this rank has no part of experts
    const float* weights = nullptr; // as ChooseExperts has them
    const std::int32_t* pairs = nullptr;
    int n_chosen = 0;
    const float* gates = nullptr; // [rows][gate_stride], or none: the sigmoid is 1
    int gate_stride = 0;
    bool keeps = false; // else y starts at 0
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

// x += delta if there is one; then out = norm(x) if there is an out. A norm has a weight [width] and maybe a bias.
struct NormCall {
    float* x = nullptr;           // [rows][x_stride], the residual stream
    int x_stride = 0;             // 0: width
    const float* delta = nullptr; // [n_parts][rows][width]: the parts are added up in order, then to x
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
    const std::int32_t* from_rows = nullptr; // [rows]: row r is made from this row of x; then without delta
};
void add_and_norm(void* stream, const NormCall& call);

// out = f(gate) * up, or f(up) without a gate. Its input is a product of the library.
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

// The cell and the output of a draft head that is an LSTM.
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

// An LSTM cell whose previous state is zeros.
struct CellCall {
    const float* gates = nullptr; // [rows][3][width]: input, candidate, output
    float* x = nullptr;           // [rows][width]
    int width = 0;
    int rows = 0;
};
// x = sigmoid(output) tanh(sigmoid(input) tanh(candidate)).
void run_cell(void* stream, const CellCall& call);

// Runs between two passes of a draft head's loop. features[r] = hidden[parents[r]]. It also keeps the hidden states of
// the previous pass: states[*first - 1 + r] = hidden[r].
struct CarryStatesCall {
    const float* hidden = nullptr;         // [rows of the previous pass][width]
    const std::int32_t* parents = nullptr; // [rows]
    float* features = nullptr;             // [rows][width]
    int width = 0;
    int rows = 0;
    const std::int32_t* first = nullptr; // number of the first row in the loop; row 0 is the text's
    float* states = nullptr;             // [n_states][width]; null: they are not kept
    int n_states = 0;
};
void carry_states(void* stream, const CarryStatesCall& call);

// The cache of a rank, in device memory: [layer][slot][kv_head][capacity][head_stride], with zeros after head_dim. Keys
// and values are apart. In latent attention the values are the first numbers of the keys.
struct CacheView {
    NumberType type = NumberType::float32;
    void* keys = nullptr;
    void* values = nullptr;
    int n_slots = 0;
    int n_kv_heads = 0;
    int capacity = 0;    // positions per slot
    int head_dim = 0;    // at most kMaxHeadDim, in latent attention kMaxLatentDim
    int head_stride = 0; // head_dim rounded up to kHeadAlign
    int value_dim = 0;   // head_dim; in latent attention smaller, at most kMaxLatentValueDim
    ENTRODRAFT_ON_DEVICES constexpr bool is_latent() const { return value_dim < head_dim; }
};
inline constexpr int kHeadAlign = 8;
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kMaxLatentDim = 576, kMaxLatentValueDim = 512;
// Number of floats that attend() holds for a query's values.
ENTRODRAFT_ON_DEVICES constexpr int padded_values(int value_dim) {
    return (value_dim + kHeadAlign - 1) / kHeadAlign * kHeadAlign;
}

// Copies positions [from, from + count) of a slot, in every layer and head, to positions from `to` on of a slot. They
// do not overlap.
struct CopyCall {
    CacheView cache;
    int n_layers = 0;
    int from_slot = 0, from = 0;
    int to_slot = 0, to = 0;
    int count = 0;
};
void copy_positions(void* stream, const CopyCall& call);

// Moves positions from[i] of a slot, in every layer and head, to positions to + i. `from` increases; from[i] >= to + i.
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

// The heads of a pass's rows in one layer.
struct HeadRows {
    CacheView cache;
    int layer = 0;
    void* qkv = nullptr; // [rows][stride] of the cache's type: query heads, key heads, value heads
    int stride = 0;
    int n_query_heads = 0;
};

// Queries and keys are normed and rotated in place; keys and values go into the cache at the rows' places.
struct PlaceCall : HeadRows {
    const float* query_norm = nullptr; // [head_dim], RMSNorm of each head; or none
    const float* key_norm = nullptr;
    float norm_epsilon = 0;
    // If not null, a row's heads are normed together, and the norms are [heads][head_dim]. Holds from each rank, in
    // order, [rows][2]: the sums of squares of its queries and keys. query_count and key_count are the totals.
    const float* row_squares = nullptr;
    int n_square_parts = 1;
    float query_count = 0, key_count = 0;
    const float* cosines = nullptr; // [positions][rotary_dims / 2]; none: no rotation
    const float* sines = nullptr;
    int rotary_dims = 0;
    bool interleaved = false; // as Rope has it
};
void place_keys(void* stream, const RowTable& table, const PlaceCall& call);

// For latent attention: to = RMSNorm of a row's first numbers.
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

// Norms a row's vector of keys and values and rotates the key after it; both go into the cache at the row's place.
// Rotates the ends of the row's queries too. They become the ends of the queries that absorb() makes from the rest.
struct PlaceLatentsCall {
    CacheView cache;
    int layer = 0;
    const void* vectors = nullptr; // [rows][vector_stride]; like all here of the cache's type
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

// y[r][head] = x[r][head] . w[head]. Each head has its own matrix; all are of one type. Rows of w lie `stride` elements
// apart, zeros after k; heads of x and y lie x_step and y_step apart.
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

// Sums the squares of a row's own queries and of its keys. Skips the keys of heads that another rank counts.
struct SquaresCall : HeadRows {
    const std::int32_t* counts_head = nullptr; // [n_kv_heads]: 0 or 1
    float* squares = nullptr;                  // [rows][2]
    int rows = 0;
};
void sum_squares(void* stream, const SquaresCall& call);

// attended[r][query head] = softmax(scale q . keys) values over the keys that the row sees. Keys are in blocks of
// kKeyBlock at fixed places, merged in order. qkv is as place_keys has left it. For sources it has query heads only;
// for latent attention too, head_stride numbers apart. attended: [n_query_heads][value_dim].
struct AttendCall : HeadRows {
    const std::int32_t* kv_head_of = nullptr; // [n_query_heads], the own key head of each
    float scale = 1;
    float soft_cap = 0;
    // ALiBi, [n_query_heads]: a key's score gains slope * its place. scaled_alibi: rounded to bfloat16, times scale.
    const float* slopes = nullptr;
    bool scaled_alibi = false;
    // [n_query_heads][2 max_distance + 1] or none: a key's score gains the entry for its distance, the row's position
    // minus the key. Entries begin at -max_distance; larger distances use the outermost entry.
    const float* relative_biases = nullptr;
    int max_distance = 0;
    const float* sinks = nullptr; // [n_query_heads] or none: one more score in each head's softmax, without a value
    int window = 0;               // in this layer: a row sees its last `window` keys; 0: all
    float* parts = nullptr;       // workspace, attend_workspace_floats() of the cache
    int* arrived = nullptr;       // workspace, attend_workspace_counters() of the cache, zeros before and after
    void* attended = nullptr;     // [rows][out_stride] of the cache's type
    int out_stride = 0;
};
inline constexpr int kKeyBlock = 256;
constexpr int key_blocks(int n_keys) {
    return (n_keys + kKeyBlock - 1) / kKeyBlock;
}
// A query's part of a block of keys is kPartHead floats and its values. The size of a row's parts over a full cache:
inline constexpr int kPartHead = 4;
constexpr std::size_t part_floats(int n_query_heads, int value_dim, int capacity) {
    return static_cast<std::size_t>(n_query_heads) * static_cast<std::size_t>(key_blocks(capacity)) *
           static_cast<std::size_t>(kPartHead + padded_values(value_dim));
}
// Number of rows attended at once, whose parts the workspace holds: all of a pass if 64 MiB suffice, at least 16.
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
// The warp that stores the last part of kMergedBlocks blocks, at fixed places, merges them into one part. The warp that
// merges the last group merges the groups. A query has a counter per group, and one for all groups.
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
// The same for a prompt's chunk: rows of one slot in order, then padding. Its kernel for many rows gives other bits
// than attend(); they depend on a row's own keys alone. For float32 and latent caches, and for heads of more than 128
// dimensions, it calls attend().
void attend_prompt(void* stream, const RowTable& table, const AttendCall& call);

// The statistics of a row of logits, as LogitStats. Sums are float32 within a block of logits and merged in double.
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
    int count = 0;                        // logits that count, starting at the first
    int first_token = 0;                  // token of the first logit
    DeviceLogitStats* partial = nullptr;  // workspace, [rows][kStatsBlocks]
    DeviceLogitStats* stats = nullptr;    // [rows]
    const DeviceNoise* noises = nullptr;  // [rows], or none
    DeviceNoisy* noisy_partial = nullptr; // workspace, [rows][kStatsBlocks]
    DeviceNoisy* noisy = nullptr;         // [rows]
    const std::int32_t* tokens = nullptr; // [count], in place of first_token, first_token + 1, ...; or null
};
inline constexpr int kStatsBlocks = 32; // one lane of a warp for each when they are merged
void summarize_logits(void* stream, const SummarizeCall& call);

// Rows of random weights (model/files/generated_values.h), as codes of a type. out[r][i] is the code of element
// (first_row + r) * row_step + (first_input + i) * input_step. With scales, the codes are those of a row whose largest
// magnitude is 2 m + 1 steps; m is that of the whole row. With group scales, they are int4 codes whose groups begin
// where the inputs do, rounded as on the CPU (quantise_group()).
struct RandomRows {
    std::uint64_t key = 0;
    std::uint64_t first_row = 0, row_step = 0, input_step = 1;
    int rows = 0;
    int first_input = 0, inputs = 0;
    int whole_inputs = 0;                  // inputs of the stored row
    int code_bytes = 0;                    // 1, 2 or 4
    const void* codes = nullptr;           // [kRandomWeights]; with scales [kRandomWeights / 2][kRandomWeights]
    const float* scale_of = nullptr;       // [kRandomWeights / 2]
    float* scales = nullptr;               // [rows], or none
    std::uint16_t* group_scales = nullptr; // [rows][chunks][2], or none
    void* out = nullptr;                   // [rows][stride]
    int stride = 0;
};
void fill_random_rows(void* stream, const RandomRows& call);

// out[r][i] = x[r][order[i]]. Rows are 16-bit numbers, `stride` apart. The first k numbers of a row are ordered; the
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

// x[i] = cap * tanh(x[i] / cap) for `count` floats. For logits.
void soft_cap(void* stream, float* x, std::size_t count, float cap);

} // namespace entrodraft::model::gpu
