// Linear attention on the device: gated DeltaNet's states and inputs, and the kernels that change and read them.
// model/pass/recurrent_states.h describes the states that are kept, and cpu/delta_net.h the arithmetic.
//
// As in kernels.h: pointers are to device memory, no CUDA header is needed, and a row's exact result depends only on
// its own text, not on other rows. Called by gpu/ops, gpu/device_states and gpu/delta_table.
#pragma once

#include "model/gpu/kernels.h"

namespace entrodraft::model::gpu {

inline constexpr int kKeyLanes = 8; // lanes per column of a state, which has value_dim columns of key_dim numbers
inline constexpr int kKeyChunk = 4 * kKeyLanes; // numbers of a column that these lanes read at once
// Returns the numbers of a column, with zeros after key_dim: a number of chunks that is a power of two.
constexpr int key_stride_of(int key_dim) {
    return kKeyChunk * static_cast<int>(std::bit_ceil(static_cast<unsigned>((key_dim + kKeyChunk - 1) / kKeyChunk)));
}

// The states and inputs of a rank's slots.
struct StatesView {
    NumberType type = NumberType::float32; // type of inputs, as products make them; states are float32
    float* states = nullptr;               // [slots][base, front][layers][value heads][value_dim][key_stride]
    void* inputs = nullptr; // [slots][layers][n_inputs][input_stride], at position % n_inputs: see input_numbers()
    int n_layers = 0;       // layers of linear attention
    int n_key_heads = 0;    // held by this rank
    int group = 0;          // value heads per key head
    int key_dim = 0, key_stride = 0, value_dim = 0;
    int n_convolved = 0;
    int n_inputs = 0, input_stride = 0;

    // Numbers of a key head: query, key, values.
    ENTRODRAFT_ON_DEVICES constexpr int convolved_size() const { return 2 * key_dim + group * value_dim; }
    ENTRODRAFT_ON_DEVICES constexpr int value_columns() const { return group * value_dim; } // of a key head
    // Numbers that a row gives to the states: for each key head the numbers that are convolved, then for each the steps
    // and the decays of its value heads, all as products have made them.
    ENTRODRAFT_ON_DEVICES constexpr int input_numbers() const { return n_key_heads * (convolved_size() + 2 * group); }
    // Number of floats of all states of a slot. The base takes that many, then the front as many again.
    ENTRODRAFT_ON_DEVICES constexpr std::size_t state_numbers() const {
        return static_cast<std::size_t>(n_layers) * static_cast<std::size_t>(n_key_heads * value_columns()) *
               static_cast<std::size_t>(key_stride);
    }
};

// Copies all of a slot to another.
void copy_states(void* stream, const StatesView& states, int from_slot, int to_slot);

// Moves inputs of positions from[i] of a slot, in every layer, to positions to + i, as MoveCall does.
struct MoveInputsCall {
    StatesView states;
    int slot = 0;
    int to = 0;
    int count = 0;
    std::int32_t from[MoveCall::kMaxCount] = {};
};
void move_inputs(void* stream, const MoveInputsCall& call);

// The rows of a pass that extend a slot, and how its states get there: RecurrentStates::Advance. All are int32.
struct DeltaSegment {
    std::int32_t slot = 0;
    std::int32_t first_row = 0, n_rows = 0; // the rows lie at consecutive places
    std::int32_t begin = 0;                 // position of the first row, or of the start of its tree
    std::int32_t base_from = 0, base_to = 0, front_from = 0, front_to = 0, copies_base = 0;
    std::int32_t first_step = 0, n_steps = 0; // of a tree; 0 steps: a chain
    std::int32_t first_saved = 0;             // of the states that the steps save
};
// A node of a tree, in the order in which states are changed; see DeltaStep of model/pass/delta_plan.h.
struct DeltaTreeStep {
    static constexpr std::int32_t kFront = -1, kNone = -2;
    std::int32_t position = 0;
    std::int32_t row = -1;     // of the pass; -1: none
    std::int32_t load = kNone; // saved state, or the front, to load first; kNone: keep the previous one
    std::int32_t save = kNone; // before all that, save the previous step's state under this number
    // Not of this node: the position that precedes the one at DeltaSegment::begin plus this step's number.
    std::int32_t parent = 0;
};

// The segments of a pass, in device memory.
struct DeltaTable {
    const std::int32_t* n_segments = nullptr;
    const DeltaSegment* segments = nullptr;
    const DeltaTreeStep* steps = nullptr;
    int max_segments = 0;
    // For a loop's further rows: row 0 alone, after the last segment, in a chain. States stay as they are.
    bool in_loop = false;
};

// Reads a layer's states for the rows of a pass, then norms and gates the result; also updates the states. Two kernels.
struct DeltaNetCall {
    StatesView states;
    DeltaTable segments;
    int layer = 0;                   // among the layers of linear attention
    const void* projected = nullptr; // [rows][projected_stride] of the states' type: Role::qkv's product
    int projected_stride = 0;
    const float* convolution = nullptr;       // [own key heads][n_convolved][convolved_size()]
    const float* decay_rates = nullptr;       // [own value heads], below 0
    const float* decay_bias = nullptr;        // [own value heads]
    float length_epsilon = 0;                 // added to the square of a key's length
    Activation activation = Activation::silu; // for convolved numbers
    const float* norm = nullptr;              // [value_dim]
    float norm_epsilon = 0;
    float* saved = nullptr;   // workspace, [saved states][own value heads][value_dim][key_stride]
    float* read = nullptr;    // workspace, [rows][own value heads][value_dim]
    void* attended = nullptr; // [rows][attended_stride] of the states' type
    int attended_stride = 0;
};
void delta_net(void* stream, const RowTable& table, const DeltaNetCall& call);

// attended *= sigmoid(gate), elementwise.
struct GateAttendedCall {
    NumberType type = NumberType::float32;
    void* attended = nullptr; // [rows][attended_stride]
    int attended_stride = 0;
    const void* gates = nullptr; // [rows][gate_stride]
    int gate_stride = 0;
    int width = 0;
    int rows = 0;
};
void gate_attended(void* stream, const GateAttendedCall& call);

} // namespace entrodraft::model::gpu
