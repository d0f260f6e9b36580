// Random matrices of codes, as kernels find them, and what they stand for. For tests only.
#pragma once

#include "tests/model/gpu_arrays.h"

namespace entrodraft::model::gpu {

// [n] rows of k codes in a form, random, as the kernels find them, and what they stand for. Zeros are not whole
// numbers, and codes in a table are rounded to the activations' type.
struct CodedMatrix {
    CodeForm form;
    int n, k, chunks;
    std::vector<std::uint8_t> codes;
    std::vector<std::byte> scales;
    std::vector<float> table;
    std::vector<double> values;

    CodedMatrix(const CodeForm& of, int rows, int inputs, NumberType type, std::mt19937& random)
        : form(of), n(rows), k(inputs), chunks(chunks_of(of, inputs)),
          codes(index(n * chunks) * kChunkBytes, has_4_bits(of) ? 0x88 : 0), values(index(n) * index(k)) {
        if (form.code == Code::table) table = random_floats(16, random);
        const int group = form.group > 0 ? form.group : chunks * chunk_inputs(form);
        const int n_scales = form.group > 0 ? chunks * scales_of_chunk(form) : 1;
        const int bytes = form.group > 0 ? scale_bytes(form) : 4;
        scales.resize(index(n * n_scales * bytes));
        for (int row = 0; row < n; ++row)
            for (int i = 0; i < k; ++i) {
                std::byte* scale_at = &scales[index((row * n_scales + i / group) * bytes)];
                if (i % group == 0) put_scale(scale_at, random);
                put_code(row, i, static_cast<std::uint8_t>(random()), type, scale_at);
            }
    }
    // Its product, but for rows, x and y.
    struct OnDevice {
        DeviceArray<std::uint8_t> codes;
        DeviceArray<std::byte> scales;
        DeviceArray<float> table;
    };
    OnDevice on_device() const { return {to_device(codes), to_device(scales), to_device(table)}; }
    Linear call(NumberType type, const OnDevice& there) const {
        Linear linear;
        linear.type = type;
        linear.w = there.codes.data();
        linear.k = k;
        linear.stride = (k + kLinearAlign - 1) / kLinearAlign * kLinearAlign;
        linear.n = n;
        linear.form = form;
        if (form.group == 0) linear.scales = reinterpret_cast<const float*>(there.scales.data());
        linear.group_scales = there.scales.data();
        linear.values = there.table.data();
        return linear;
    }

  private:
    void put_scale(std::byte* to, std::mt19937& random) const {
        const std::vector<float> two = random_floats(2, random);
        const std::uint16_t brief = to_bfloat16(two[0]);
        form.group == 0 || form.wide_scales ? std::memcpy(to, &two[0], 4) : std::memcpy(to, &brief, 2);
        if (form.has_offsets) std::memcpy(to + 4, &two[1], 4);
    }
    void put_code(int row, int i, std::uint8_t code, NumberType type, const std::byte* scale_at) {
        std::uint8_t* of_row = &codes[index(row * chunks) * kChunkBytes];
        double number = 0;
        if (has_4_bits(form)) {
            code %= 16;
            of_row[4 * int4_word(i) + int4_bit(i) / 8] ^= static_cast<std::uint8_t>(code << int4_bit(i) % 8);
            number = form.code == Code::table ? static_cast<double>(rounded(type, table[code]))
                                              : static_cast<double>(code < 8 ? code : code - 16);
        } else {
            if (form.code == Code::float8 && (code & 0x7f) == 0x7f) code = 0; // no number
            of_row[int8_place(i)] = code;
            number = static_cast<double>(
                form.code == Code::float8 ? from_float8(code) : static_cast<float>(static_cast<std::int8_t>(code)));
        }
        float scale = 0, offset = 0;
        std::uint16_t brief = 0;
        std::memcpy(&brief, scale_at, 2);
        form.group == 0 || form.wide_scales ? void(std::memcpy(&scale, scale_at, 4))
                                            : void(scale = from_bfloat16(brief));
        if (form.has_offsets) std::memcpy(&offset, scale_at + 4, 4);
        values[index(row * k + i)] = static_cast<double>(scale) * number - static_cast<double>(offset);
    }
};

// [rows][stride], zeros behind k.
inline std::vector<float> random_rows(NumberType type, int rows, int k, int stride, std::mt19937& random) {
    std::vector<float> x = random_numbers(type, index(rows) * index(stride), random);
    for (std::size_t i = 0; i < x.size(); ++i)
        if (i % index(stride) >= index(k)) x[i] = 0;
    return x;
}

} // namespace entrodraft::model::gpu
